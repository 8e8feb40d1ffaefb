// Package stack defines an installation of rollout on AWS as one CloudFormation
// stack: its bucket, its table, its queues, its functions, each with a role of
// its own, and the groups of GPU machines, which are empty while there is no
// work.
//
// ReadConfig reads the installation's config; New adds the stack to a CDK app.
// All resource names follow from the config, so that the command line and the
// machines find everything without a lookup.
//
// The stack contains nothing that costs money by the hour, except the machines
// while they work. The package defines which actions each role may take on which
// resources. It does not define what the functions do, and none of its code runs
// in the cloud.
package stack
