// Package seeds makes in an emulator of AWS what a deployed stack has: the
// bucket, the table and the queues that the deployment's config names.
//
// It is for emulators alone, which it takes by their address on this machine or
// in its network of containers. An account gets its stack by cdk deploy.
package provision
