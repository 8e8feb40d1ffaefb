package main

import (
	"rollout/shared/config"
	catalog "rollout/shared/prices"
)

// prices are a region's list prices in US dollars.
type prices struct {
	Region, Date, Source string

	S3Put, S3Get           float64 // a request; puts, copies, posts and lists cost the same
	Write, Read            float64 // a capacity unit of DynamoDB, on demand, standard tables
	SQS                    float64 // a request of standard queues, for each 64 KiB
	Invocation, GBSecond   float64 // of Lambda, arm64
	SecretRequest          float64
	BusEvent               float64
	LogGB                  float64
	Alarm, Secret          float64 // a month
	StoredGB               float64 // a month, of S3 Standard
	FreeSQS                float64 // free requests a month (permanent free tier)
	FreeCalls, FreeSeconds float64 // Lambda's free invocations and GB-seconds a month
	FreeAlarms             float64
	FreeLogGB              float64
}

// listed are the prices by which summaries of runs count.
var listed = catalog.Of(config.ProviderAWS)

// usEast1 are the list prices of us-east-1, without taxes and discounts.
var usEast1 = prices{
	Region: "us-east-1", Date: listed.Date, Source: listed.Source,
	S3Put: listed.Unit(catalog.S3Puts), S3Get: listed.Unit(catalog.S3Gets),
	Write: listed.Unit(catalog.DynamoDBWrites), Read: listed.Unit(catalog.DynamoDBReads),
	SQS:        listed.Unit(catalog.SQSRequests),
	Invocation: listed.Unit(catalog.LambdaCalls), GBSecond: listed.Unit(catalog.LambdaTime),
	SecretRequest: listed.Unit(catalog.SecretRequests),
	BusEvent:      listed.Unit(catalog.BusEvents),
	LogGB:         listed.Unit(catalog.LambdaLogs),
	Alarm:         0.10, Secret: 0.40, StoredGB: 0.023,
	FreeSQS: 1e6, FreeCalls: 1e6, FreeSeconds: 400_000, FreeAlarms: 10, FreeLogGB: 5,
}
