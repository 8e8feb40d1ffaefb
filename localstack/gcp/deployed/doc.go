// Package deployed is an installation on Google Cloud as infra/gcp plans it, on this
// machine. The plan says everything: buckets, notifications, topics and subscriptions,
// secrets, the services with their environment, the timer, the sink of the audit log, and
// who may do what.
//
//	planned.Deployment ──Deploy──▶ emulators, and a process for each service
//
//	process ──its own credentials (fakemetadata)──▶ gateway ──TLS──▶ guard ──▶ emulator
//	                                                                  └ iam.Policy
//	Pub/Sub, timer ──identity token──▶ service's front, which asks iam.Policy ──▶ process
//
// Programs run as on Google Cloud: they call Google's hosts, with tokens of the accounts
// that the plan gives them. A request that no grant of the plan allows is refused with 403,
// as Google refuses it. Google's own services act with their agents' accounts: what they may
// not do, they leave out silently. iam.Policy notes all of it.
//
// The test itself is the owner: it reaches the emulators directly.
package deployed
