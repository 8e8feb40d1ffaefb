// Package installation opens the installation that a command or a worker names.
// It is a folder on this machine, or a cloud deployment that the folder's
// rollout.toml describes.
//
//	Location ──▶ Open ──┬─ OpenLocal ──▶ shared/embedded (state and bucket in the folder)
//	                    └─ ProviderOf ─▶ cloud.Provider ──▶ shared/<cloud>
//
// It wires drivers to ports, so that commands do not depend on drivers. Several
// processes may open the same folder: commands work with and without a running
// `rollout up`. Cloud functions open their provider directly and do not import
// this package. The package never starts a process, never creates a bucket or
// table in a cloud, and never reads a run.
package installation
