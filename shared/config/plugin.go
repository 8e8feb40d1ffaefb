package config

import "slices"

// PluginFile is the name of a plugin's manifest, in the folder with the plugin's files.
const PluginFile = "rollout-plugin.toml"

// PluginABI is the version of the protocol between a worker and its plugins.
const PluginABI = 1

// Kinds of plugin, as values of PluginManifest.Kind.
const (
	PluginGrader           = "grader"            // scores answers
	PluginRowPreparer      = "row-preparer"      // adds members to the requests of a line
	PluginRowFinisher      = "row-finisher"      // adds a member to an output row
	PluginPipelineStage    = "pipeline-stage"    // is a stage of a pipeline
	PluginTrialEnvironment = "trial-environment" // says the user's messages of a trial with several turns
)

// PluginKinds lists every kind of plugin.
func PluginKinds() []string {
	return []string{PluginGrader, PluginRowPreparer, PluginRowFinisher, PluginPipelineStage, PluginTrialEnvironment}
}

// Modes of plugins, as values of PluginManifest.Mode.
const (
	PluginBuiltin = "builtin" // Go code of the worker's own program
	PluginWASM    = "wasm"    // a WebAssembly module, in the worker's process and without rights
	PluginSidecar = "sidecar" // a process beside the worker
)

// PluginModes lists every mode of plugins.
func PluginModes() []string { return []string{PluginBuiltin, PluginWASM, PluginSidecar} }

// PluginManifest is the file PluginFile: what a plugin is and how it starts.
type PluginManifest struct {
	Name    string `toml:"name"`    // Example: "keywords"
	Version string `toml:"version"` // any text. Example: "1.2.0"
	Kind    string `toml:"kind"`    // one of PluginKinds
	// TraitID names what the plugin implements, as TraitOf its kind returns it.
	TraitID string `toml:"trait_id"`
	Mode    string `toml:"mode"` // one of PluginModes
	// NetworkAllowlist are the hosts that a sidecar calls. Nothing enforces it: a plugin that has
	// one runs only if the deployment trusts it. Without one, a sidecar has no network.
	NetworkAllowlist []string      `toml:"network_allowlist"`
	Runtime          PluginRuntime `toml:"runtime"`
	Entry            PluginEntry   `toml:"entry"`
}

// PluginRuntime are the limits of a plugin.
type PluginRuntime struct {
	// MemoryMB is the memory of each process of a sidecar, or of a call of a WebAssembly module, in
	// MiB; default: 512.
	MemoryMB int `toml:"memory_mb"`
	// Processes is how many processes and threads a sidecar may have at once; default: 32.
	Processes int `toml:"processes"`
}

// PluginEntry says how a plugin starts: the table of its mode alone is set.
type PluginEntry struct {
	Builtin PluginBuiltinEntry `toml:"builtin"`
	WASM    PluginWASMEntry    `toml:"wasm"`
	Sidecar PluginSidecarEntry `toml:"sidecar"`
}

// PluginBuiltinEntry names the Go code of a plugin.
type PluginBuiltinEntry struct {
	Factory string `toml:"factory"` // a name in the registry of the worker's program
}

// PluginWASMEntry names the module of a plugin.
type PluginWASMEntry struct {
	Module string `toml:"module"` // a file below the plugin's folder
}

// PluginSidecarEntry is the command of a plugin, which starts in its folder.
type PluginSidecarEntry struct {
	Args []string `toml:"args"` // the program and its arguments; no shell sees them
}

// TraitOf returns the trait id of a kind of plugin. Example: "rollout.grader.v1".
func TraitOf(kind string) string { return "rollout." + kind + ".v1" }

// DefaultPluginManifest returns the defaults of a manifest.
func DefaultPluginManifest() PluginManifest {
	return PluginManifest{Runtime: PluginRuntime{MemoryMB: 512, Processes: 32}}
}

// ParsePlugin writes the manifest of a plugin over DefaultPluginManifest. Messages name the
// source by file. Errors are Invalid and hold Problems.
func ParsePlugin(file string, src []byte) (PluginManifest, error) {
	m := DefaultPluginManifest()
	err := parse(file, src, versionOptional, &m, func(c *checker) { m.check(c) })
	return m, err
}

// Plugin is a table [plugins.NAME] of a deployment: a plugin that its workers load. NAME is the
// name in the plugin's manifest.
type Plugin struct {
	Path string `toml:"path"` // the folder with the plugin's files, or its manifest
	// Trusted says that the plugin may do what the worker's user may: a sidecar then runs outside
	// of the sandbox, with the network of the machine.
	Trusted bool `toml:"trusted"`
	// Version is the version that the plugin's manifest must have, and ContentID the content id that
	// the plugin's files must have; "" takes any. The commands that load plugins fill them in.
	Version   string `toml:"version"`
	ContentID string `toml:"content_id"`
	// Batch is how many answers a grader gets in a call, at most; default: 16.
	Batch int `toml:"batch"`
	// Concurrency is how many calls a worker makes at once; default: 2. A sidecar has a process
	// for each.
	Concurrency int      `toml:"concurrency"`
	Timeout     Duration `toml:"timeout"` // longest call; default: 30s
	Retries     int      `toml:"retries"` // of a call that failed, with backoff; default: 4
	// MaxWait is how long an answer waits for its score, all tries together; default: 5m.
	MaxWait Duration `toml:"max_wait"`
}

// setDefaults sets the defaults, over which the binder writes a file's values.
func (p *Plugin) setDefaults() { *p = DefaultPlugin() }

// WithPlugin returns the deployment with one more plugin, or with another one of the name.
func (d Deployment) WithPlugin(name string, p Plugin) Deployment {
	out := map[string]Plugin{}
	for other, had := range d.Plugins {
		out[other] = had
	}
	out[name] = p
	d.Plugins = out
	return d
}

// pluginNames returns the names of the plugins, sorted.
func pluginNames(plugins map[string]Plugin) (names []string) {
	for name := range plugins {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
