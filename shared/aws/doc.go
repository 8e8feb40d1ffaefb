// Package aws has the drivers of Amazon Web Services, one file a port: objects
// in S3, documents in DynamoDB, queues in SQS, secrets in Secrets Manager,
// notices from an EC2 instance's metadata, and fleets of Auto Scaling.
//
// Every driver passes its port's conformance suite, against emulators and, if
// asked to, a real account. Where they are is the SDK's affair: its endpoint
// and credential variables work, and nothing else tells an emulator from the
// cloud. The package never makes a bucket or a table, never overwrites where
// its port says create, and leaves repeating a failed request to the SDK and
// to the wrappers above the ports; but of a batch it repeats what the service
// left undone, which nobody above can name.
package aws
