// Package e2e tests the product on AWS with real processes: the functions as they
// are deployed, workers on instances that start and end, the command line, and an
// inference server. Package fakeaws is the account.
//
// Package scenarios has what users have in every cloud, and what disturbs their runs. Here
// are an account as it sees one, and tests of what AWS alone has.
package e2e
