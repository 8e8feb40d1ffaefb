// Package emulators runs the conformance suites of the ports over the drivers of
// Google Cloud: against emulators in this process and, on request, a real project.
//
// matrix_test.go says which suite runs where. DIFFERENCES.md lists where an
// emulator differs from Google Cloud. The package is in a nested module, so that no
// emulator becomes a dependency of the product. All servers listen on the loopback
// interface. Only TestProject contacts a real project.
package emulators
