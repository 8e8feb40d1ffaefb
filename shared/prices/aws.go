package prices

import "rollout/shared/core/cost"

// Names of positions of AWS.
const (
	S3Puts         = "S3 puts, copies, lists"
	S3Gets         = "S3 gets"
	DynamoDBWrites = "DynamoDB writes"
	DynamoDBReads  = "DynamoDB reads"
	SQSRequests    = "SQS requests"
	SecretRequests = "Secrets Manager requests"
	BusEvents      = "EventBridge events"
	LambdaCalls    = "Lambda invocations"
	LambdaTime     = "Lambda durations" // GB-seconds
	LambdaLogs     = "CloudWatch logs"  // GB
)

// aws are the list prices of us-east-1. The spot price of machines changes from day to day
// and from zone to zone: less than half of the list price is usual for GPUs of this size.
// The prices of all machines are those that AWS's price list API gave on 2026-01-19, as
// karpenter keeps them (zz_generated.pricing_aws.go of aws/karpenter-provider-aws).
// The requests are those of runs of 257 shards, and of telling the end of a run.
func aws() cost.Prices {
	return cost.Prices{
		Date:   "2025-11",
		Source: "us-east-1, aws.amazon.com/{ec2,s3,dynamodb,sqs,lambda,cloudwatch,secrets-manager,eventbridge}/pricing",
		Machines: map[string]float64{
			"g6.xlarge": 0.8048, "g6.2xlarge": 0.9776, "g6.4xlarge": 1.3232, "g6.8xlarge": 2.0144, "g6.16xlarge": 3.3968,
			"g6.12xlarge": 4.6016, "g6.24xlarge": 6.6752, "g6.48xlarge": 13.3504,
			"gr6.4xlarge": 1.5392, "gr6.8xlarge": 2.4464,
			"g6e.xlarge": 1.861, "g6e.2xlarge": 2.24208, "g6e.4xlarge": 3.00424, "g6e.8xlarge": 4.52856,
			"g6e.16xlarge": 7.57719, "g6e.12xlarge": 10.49264, "g6e.24xlarge": 15.06559, "g6e.48xlarge": 30.13118,
			"g5.xlarge": 1.006, "g5.2xlarge": 1.212, "g5.4xlarge": 1.624, "g5.8xlarge": 2.448, "g5.16xlarge": 4.096,
			"g5.12xlarge": 5.672, "g5.24xlarge": 8.144, "g5.48xlarge": 16.288,
			"p4d.24xlarge": 21.957642, "p5.48xlarge": 55.04,
			"c7i.large": 0.08925, "c7i.xlarge": 0.1785, "c7i.2xlarge": 0.357, "c7i.4xlarge": 0.714, "c7i.8xlarge": 1.428,
			"m7i.large": 0.1008, "m7i.xlarge": 0.2016, "m7i.2xlarge": 0.4032, "m7i.4xlarge": 0.8064,
			"c7a.2xlarge": 0.41056, "c6i.2xlarge": 0.34, "c6a.2xlarge": 0.306, "c5.2xlarge": 0.34,
			"m6i.2xlarge": 0.384, "m6a.2xlarge": 0.3456, "m5.2xlarge": 0.384,
		},
		Classes: map[string]float64{cost.Spot: 0.45},
		Positions: []cost.Position{
			{Name: S3Puts, Price: 0.005 / 1000, Run: 11, Shard: 1.07, MachineHour: 60}, // a checkpoint a minute
			{Name: S3Gets, Price: 0.0004 / 1000, Run: 16, Shard: 2.07},
			{Name: DynamoDBWrites, Price: 0.625 / 1e6, Run: 18, Shard: 2.16, MachineHour: 352},
			{Name: DynamoDBReads, Price: 0.125 / 1e6, Run: 11, Shard: 2.2, MachineHour: 940},
			{Name: SQSRequests, Price: 0.40 / 1e6, Run: 15, Shard: 1.81, MachineHour: 235},
			{Name: SecretRequests, Price: 0.05 / 10_000},
			{Name: BusEvents, Price: 1.00 / 1e6, Run: 1},
			{Name: LambdaCalls, Function: true, Price: 0.20 / 1e6, Run: 4, Shard: 0.15},
			// Of arm64, counted on a quiet machine.
			{Name: LambdaTime, Function: true, Price: 0.0000133334, Run: 0.2, Shard: 0.03},
			{Name: LambdaLogs, Function: true, Price: 0.50, Run: 1.5e-6, Shard: 5e-8},
		},
	}
}
