// Package fakeaws is an AWS account on this machine, as far as rollout needs one.
// It serves one address in front of an emulator of S3, DynamoDB, SQS and Secrets
// Manager, counts all requests, and adds what the emulator lacks:
//
//   - Lambda: functions are the product's programs. Each invocation runs in a
//     process that uses Lambda's runtime API and is stopped between invocations.
//     Asynchronous invocations are tried three times and then become dead letters.
//     The mapping of a queue returns the messages that a batch reports as failed.
//     S3 announces new objects to submit. A schedule has minutes of any length. A
//     chain of more than 16 invocations is cut, by the header with which Lambda
//     follows chains.
//   - Auto Scaling: the instances of groups are processes, each with its own
//     metadata service, and with notices of any lead.
//   - EventBridge: PutEvents on the deployment's bus, and entries that are refused.
//   - IAM: functions and instances are limited to the roles of the stack's
//     template, if it is given.
//   - Faults: lost replies and throttled requests, drawn from a seed.
//
// It follows AWS's documentation. Where that leaves a choice, it can take the
// worse one: events are delivered several times and in any order if configured.
// It listens on the loopback interface and never contacts a real account.
package fakeaws
