// Package cases holds what broke other systems of this kind, one test a case:
// the bytes and events to survive, and what is right.
//
// A test is named after its case and submits real files to the real functions
// and workers, all in this process: over the drivers of a laptop in a folder
// of its own, or over the drivers in memory where time matters and is
// simulated. It proves nothing about processes and signals; package e2e does.
package regressions
