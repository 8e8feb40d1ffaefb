// Package standin is an AWS account on this machine, as far as rollout needs
// one. Before an emulator of S3, DynamoDB, SQS and Secrets Manager it puts one
// address, adds what the emulator has not, and lets nothing pass uncounted:
//
//   - Lambda: functions are the product's programs, each invocation in a process
//     of Lambda's runtime API that is frozen in between. Asynchronous ones are
//     tried three times and then sent to the dead letters; a queue's mapping
//     takes back the messages that a batch reports; S3 tells submit of new
//     objects; a schedule has minutes of any length. A chain of more than 16
//     invocations is cut, by the header with which Lambda follows them.
//   - Auto Scaling: groups whose instances are processes, each with a metadata
//     service of its own, and notices of any lead.
//   - IAM: functions and instances are held to the roles of the stack's template,
//     if it is given.
//   - Faults: replies that are lost and requests that are throttled, drawn from a
//     seed.
//
// It follows what AWS documents, and where that leaves a choice, the worse one:
// events come more often than once and in any order if they are told to. It
// listens on the loopback interface alone and knows no real account.
package fakeaws
