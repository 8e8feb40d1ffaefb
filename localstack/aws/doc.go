// Package emulators is the harness in which the cloud drivers pass their
// ports' conformance suites: against emulators in this process, against second
// opinions in processes of their own, and against a real account.
//
// It is a module of its own, so that no emulator enters the product's. Its
// tests say which suite runs where (matrix_test.go) and which promises an
// emulator is known to break (Differences). It never starts anything that can
// be reached from another machine, and no test but the one for it ever talks
// to a real account.
package aws
