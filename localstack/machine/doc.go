// Package machine tests what a machine of a fleet runs: its start script, with fake
// programs for everything that the script calls, and the worker's image.
//
// It contains only tests. They can't prove that a real machine has the programs
// that the script calls.
package machine
