// Package cloud declares what a provider implements in addition to the drivers
// of its ports: opening a deployed installation, its machines and their fleet,
// the differences from an installation on one machine, and remedies in the
// provider's own commands.
//
//	config.Cloud ──▶ Provider.Open ──▶ Installation ──▶ Stores (ports, secrets)
//	                                        ├──▶ Fleet, Machine
//	                                        └──▶ Diagnostics (for the doctor)
//	config.Deployment ──▶ Provider.Profile ──▶ Capabilities, Hints
//
// Code for all clouds uses these values and never asks which provider they come
// from. The package imports no driver and no SDK, and opens nothing itself:
// shared/installation lists the providers, and a cloud's functions open their
// provider directly.
//
// # Adding a cloud
//
// Add one folder or file in each of these places, and a line to two lists:
//
//	shared/<cloud>/            drivers, one file a port; fault.go with the error
//	                           table; provider.go; hints.go; diagnostics.go
//	shared/config/<cloud>.go, <cloud>_defaults.go
//	                           tables of [cloud], checks, defaults, drain budget;
//	                           and a line in providers() of provider.go
//	shared/installation/providers.go
//	                           a line in Providers()
//	functions/<cloud>/<name>/  thin mains; functions/<cloud>/internal translates the
//	                           cloud's calls of a function into events
//	infra/<cloud>/             the deployment
//	localstack/<cloud>/        emulators, conformance suites of the drivers, end-to-end tests
package cloud
