// Package regressions has one test for each case that broke other systems of
// this kind: the bytes and events to survive, and the right result.
//
// A test is named after its case, such as C25. It submits real files to the real
// functions and workers, which run in this process: over the embedded drivers
// in a temporary folder, or over the drivers in memory in simulated time. It
// proves nothing about processes and signals; package e2e does.
package regressions
