// Package machine tries out what a machine of a fleet runs: the script by which
// it starts, with stand-ins for everything that this calls, and the worker's
// image.
//
// It has no code of its own. What it can't prove, that a machine of Amazon's has
// what the script calls, only a real one proves.
package machine
