// Package bench runs the product over embedded stores in one process, to be
// profiled: with the mock engine at 0 ms, which leaves what everything but
// inference costs, and over a real HTTP server.
//
// Figures to be compared come from scripts/bench, which measures processes;
// nothing judges them in a test, as timed tests fail on busy machines.
package bench
