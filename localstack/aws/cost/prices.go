package main

// prices are a region's list prices in US dollars.
type prices struct {
	Region, Date, Source string

	S3Put, S3Get           float64 // a request; puts, copies, posts and lists cost the same
	Write, Read            float64 // a capacity unit of DynamoDB, on demand, standard tables
	SQS                    float64 // a request of standard queues, for each 64 KiB
	Invocation, GBSecond   float64 // of Lambda, arm64
	SecretRequest          float64
	LogGB                  float64
	Alarm, Secret          float64 // a month
	FreeSQS                float64 // free requests a month (permanent free tier)
	FreeCalls, FreeSeconds float64 // Lambda's free invocations and GB-seconds a month
	FreeAlarms             float64
	FreeLogGB              float64
}

// usEast1 are the list prices of us-east-1, without taxes and discounts.
var usEast1 = prices{
	Region: "us-east-1", Date: "2025-11",
	Source: "aws.amazon.com/{s3,dynamodb,sqs,lambda,cloudwatch,secrets-manager}/pricing",
	S3Put:  0.005 / 1000, S3Get: 0.0004 / 1000,
	Write: 0.625 / 1e6, Read: 0.125 / 1e6,
	SQS:        0.40 / 1e6,
	Invocation: 0.20 / 1e6, GBSecond: 0.0000133334,
	SecretRequest: 0.05 / 10_000,
	LogGB:         0.50,
	Alarm:         0.10, Secret: 0.40,
	FreeSQS: 1e6, FreeCalls: 1e6, FreeSeconds: 400_000, FreeAlarms: 10, FreeLogGB: 5,
}
