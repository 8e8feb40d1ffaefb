// Package installation opens the installation that a command line names: a
// laptop's folder, or a stack that was deployed to a cloud, which the
// rollout.toml of a folder describes.
//
// Which drivers stand behind the ports is decided here, so that commands do not
// know which they work with. The package starts nothing, makes no bucket and no
// table, and reads no run.
package installation
