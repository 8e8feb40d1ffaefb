// Package cloud is what a provider gives beside the drivers of its ports: how to
// open a deployed installation, its machines and their fleet, what differs from
// an installation on one machine, and what to do about trouble in the provider's
// own commands.
//
//	config.Cloud ──▶ Provider.Open ──▶ Installation ──▶ Stores (ports, secrets)
//	                                        ├──▶ Fleet, Machine
//	                                        └──▶ Diagnostics (for the doctor)
//	config.Deployment ──▶ Provider.Profile ──▶ Capabilities, Hints
//
// Code that is the same in every cloud takes these values and never asks which
// provider they come from. The package imports no driver and no SDK, and opens
// nothing itself: shared/installation lists the providers, and a cloud's
// functions open their own one directly.
//
// # A further cloud
//
// A cloud is one folder in each of these places, and a line in two lists:
//
//	shared/<cloud>/            drivers, one file a port; fault.go, its error table;
//	                           provider.go, its Provider; hints.go; diagnostics.go
//	shared/config/<cloud>.go   its tables of [cloud], defaults, checks, drain budget;
//	                           and its line in providers() of provider.go
//	shared/installation/providers.go
//	                           its line in Providers()
//	functions/<cloud>/<name>/  thin mains; functions/<cloud>/internal turns the
//	                           shapes in which the cloud calls a function into events
//	infra/<cloud>/             what is deployed
//	localstack/<cloud>/        emulators, the matrix of driver and suite, end to end
package cloud
