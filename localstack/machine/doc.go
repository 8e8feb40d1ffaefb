// Package machine tries out what a machine of a fleet does when it starts, with
// stand-ins for everything that it calls.
//
// It has no code of its own. What the script's text can't prove, that a real
// machine of Amazon's has what the script calls, only a real one proves.
package machine
