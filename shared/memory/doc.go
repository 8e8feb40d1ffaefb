// Package memory has the drivers that keep everything in this process:
// documents, queues and blobs for simulations and tests.
//
// They pass the ports' conformance suites and work inside a testing/synctest
// bubble. They never touch a disk, never survive the process, and start no
// goroutine that outlives the call or context it serves.
package memory
