// Package installation opens the installation that a command or a worker names:
// a folder on this machine, or one that was deployed to a cloud, which the
// rollout.toml of a folder describes.
//
//	Location ──▶ Open ──┬─ OpenLocal ──▶ shared/embedded (state and bucket in the folder)
//	                    └─ ProviderOf ─▶ cloud.Provider ──▶ shared/<cloud>
//
// It is the wiring of drivers to ports, so that commands do not know which
// drivers they work with. Several processes may have the same folder open:
// commands work while `rollout up` runs and while it does not. Functions do not
// import this package; each opens its own provider. The package starts nothing,
// makes no bucket and no table, and reads no run.
package installation
