// Package plugin runs the plugins of a worker.
//
//	rollout-plugin.toml ─▶ Read ─▶ Source ─▶ Open ─┬─ builtin: Go code of this program
//	                                               ├─ wasm: an instance for each call
//	                                               └─ sidecar: a process for each call at once
//	grading ─▶ Host.Call(plugin, method, payload) ─┴──▶ reply
//
// A Host has the plugins of a deployment. It bounds the number of calls at once, their time and
// their size, whatever the mode, and reports them. A plugin is untrusted: its faults are errors
// of the calls that met them, and of no other plugin. A call that fails because its request is
// refused is Invalid; one that may succeed later, as the plugin crashed, took too long or replied
// nonsense, is Unavailable. Whose fault that is, the caller finds out by comparison.
//
// The package decides nothing about scores, rows and runs, and never starts what a run's config
// names.
package plugin
