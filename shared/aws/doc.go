// Package aws implements the storage and capacity ports on Amazon Web Services:
// objects in S3, documents in DynamoDB, queues in SQS, secrets in Secrets
// Manager, preemption notices from an EC2 instance's metadata, and fleets in
// Auto Scaling. It is also the cloud.Provider of a deployed stack.
//
// Every driver passes the conformance suite of its port, against emulators and,
// on request, a real account. The SDK's own endpoint and credential variables
// decide where requests go; the package does not distinguish an emulator from
// AWS.
//
// The package never creates a bucket or a table, and never overwrites where its
// port says create. It leaves retries of failed requests to the SDK and to the
// wrappers above the ports, with one exception: after a partly successful batch
// it retries the entries that the service did not process, because only the
// driver knows which ones they are.
package aws
