// Package bench has benchmarks that run the product over embedded stores in one
// process, for profiling: with the mock engine, which takes no time, and over an
// HTTP server.
//
// scripts/bench measures processes and gives the figures to compare. No test judges
// a time, since timed tests fail on busy machines.
package bench
