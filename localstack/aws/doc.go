// Package emulators runs the conformance suites of the ports over the drivers of
// AWS: against emulators in this process, against emulators in other processes,
// and against a real account.
//
// matrix_test.go says which suite runs where. DIFFERENCES.md lists where an
// emulator differs from AWS. The package is in a nested module, so that no
// emulator becomes a dependency of the product. All servers listen on the
// loopback interface. Only TestAccount contacts a real account.
package emulators
