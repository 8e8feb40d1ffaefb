// Package e2e tests the product on AWS with real processes: the functions as they
// are deployed, workers on instances that start and end, the command line, and an
// inference server. Package fakeaws is the account.
//
// Whatever disturbs a run, its files are those that `rollout up` writes on one
// machine for the same input and config. Disturbances are drawn from seeds, which
// failures print.
package e2e
