// Package bench measures the product over embedded stores, in one process and
// with the mock engine at 0 ms: what everything but inference costs.
//
// Figures are written by `make bench`; nothing here judges them, as timed
// tests fail on busy machines.
package bench
