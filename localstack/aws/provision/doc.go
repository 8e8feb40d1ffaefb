// Package provision creates the resources of a stack in an emulator of AWS: the
// bucket, the table and the queues that a deployment's config names.
//
// It refuses addresses that are neither on this machine nor in its network of
// containers. A real account gets its stack with cdk deploy.
package provision
