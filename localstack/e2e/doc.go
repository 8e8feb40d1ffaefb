// Package e2e tests the product as its users run it: the real binaries, in
// processes of their own, over a folder and an HTTP server, killed with real
// signals.
//
// Tests stand on three legs: process runs a program, installation is one
// folder with its `rollout up`, outcome is what a run left for its user. They
// look at the product only from outside: its command line, its API, its files
// and the requests that its inference server got. What needs thousands of
// histories is simulated instead; see package sim.
package e2e
