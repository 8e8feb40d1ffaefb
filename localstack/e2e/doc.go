// Package e2e tests the product as its users run it: the real programs, each in
// its own process, over a folder and an HTTP server, killed with real signals.
//
// The tests have three helpers: process runs a program, testInstallation is a
// folder with its `rollout up`, outcome is what a run left for its user. They
// observe the product only from outside: its command line, its API, its files
// and the requests that its inference server received. Cases that need
// thousands of histories are simulated; see package sim.
//
// Waits end with what they wait for. Their deadlines are minutes, so that the
// tests hold on a machine that does much else.
package e2e
