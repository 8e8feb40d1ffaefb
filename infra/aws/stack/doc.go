// Package stack is an installation of rollout on AWS as a CloudFormation
// stack: its bucket, its table, its queues, its functions with a role each, and
// the groups of GPU machines, which have no machine while there is no work.
//
// All names follow from the installation's config, so that the command line
// and the machines find everything without asking. It makes nothing that costs
// money by the hour, but for the machines while they work. It knows what may
// be asked of each service and by whom; what the functions do is not its
// affair, and nothing here runs in the cloud.
package stack
