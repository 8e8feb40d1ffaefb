package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds of plugins.
const (
	maxPlugins          = 32
	maxPluginMemory     = 64 << 10 // MiB
	minPluginMemory     = 64       // MiB; what a sandbox itself needs
	maxPluginProcesses  = 4096
	maxPluginArgs       = 64
	maxPluginHosts      = 64
	contentIDCharacters = 64
)

// check adds the problems of a manifest.
func (m PluginManifest) check(c *checker) {
	c.label("name", m.Name, maxGraderName, "")
	if m.Version == "" {
		c.add("version", "missing: give the plugin a version, such as \"1.0.0\"")
	}
	c.text("version", m.Version, maxOption)
	c.oneOfOrMissing("kind", "kind of plugin", m.Kind, PluginKinds())
	c.oneOfOrMissing("mode", "mode", m.Mode, PluginModes())
	if m.TraitID != "" && slices.Contains(PluginKinds(), m.Kind) && m.TraitID != TraitOf(m.Kind) {
		c.add("trait_id", "%s is not the trait of the kind %s: use %q, or remove it", quote(m.TraitID), m.Kind,
			TraitOf(m.Kind))
	}
	m.checkNetwork(c)
	c.integer("runtime.memory_mb", &m.Runtime.MemoryMB, minPluginMemory, maxPluginMemory, "")
	c.integer("runtime.processes", &m.Runtime.Processes, 1, maxPluginProcesses, "")
	m.checkEntry(c)
}

// oneOfOrMissing adds the problem of a value that is missing or not one of the list.
func (c *checker) oneOfOrMissing(field, what, s string, list []string) {
	switch {
	case s == "":
		c.add(field, "missing: use one of %s", strings.Join(list, ", "))
	case !slices.Contains(list, s):
		c.oneOf(field, what, s, list)
	}
}

func (m PluginManifest) checkNetwork(c *checker) {
	if len(m.NetworkAllowlist) == 0 {
		return
	}
	if m.Mode != PluginSidecar {
		c.add("network_allowlist", "a plugin of the mode %s has no network: remove it", quote(m.Mode))
	}
	if len(m.NetworkAllowlist) > maxPluginHosts {
		c.add("network_allowlist", "lists %d hosts, at most %d are allowed", len(m.NetworkAllowlist), maxPluginHosts)
		return
	}
	for i, host := range m.NetworkAllowlist {
		field := element("network_allowlist", i)
		if host == "" || strings.ContainsAny(host, "/ \t\n@?#") {
			c.add(field, "%s is not a host: write a name or an address, such as \"api.example.com\"", quote(host))
		}
		c.text(field, host, maxText)
	}
}

// checkEntry checks that the table of the mode alone is set.
func (m PluginManifest) checkEntry(c *checker) {
	e := m.Entry
	for _, table := range []struct {
		mode, field string
		set         bool
		missing     string
	}{
		{PluginBuiltin, "entry.builtin.factory", e.Builtin.Factory != "", "name the Go code in the worker's program"},
		{PluginWASM, "entry.wasm.module", e.WASM.Module != "", "name the module's file, such as \"plugin.wasm\""},
		{PluginSidecar, "entry.sidecar.args", len(e.Sidecar.Args) > 0,
			"write the command, such as [\"python3\", \"plugin.py\"]"},
	} {
		switch own := m.Mode == table.mode; {
		case own && !table.set:
			c.add(table.field, "missing: %s", table.missing)
		case !own && table.set && slices.Contains(PluginModes(), m.Mode):
			c.add(table.field, "the mode is %s: remove it", quote(m.Mode))
		}
	}
	if f := e.Builtin.Factory; f != "" {
		c.label("entry.builtin.factory", f, maxGraderName, "")
	}
	if f := e.WASM.Module; f != "" && (path.IsAbs(f) || path.Clean(f) != f || len(f) > maxText ||
		slices.ContainsFunc(strings.Split(f, "/"), func(part string) bool { return !IsPluginFile(part) })) {
		c.add("entry.wasm.module", "%s is not a file of the plugin: write a path below its folder, such as "+
			"\"plugin.wasm\", without names that begin with a dot", quote(f))
	}
	if len(e.Sidecar.Args) > maxPluginArgs {
		c.add("entry.sidecar.args", "has %d arguments, at most %d are allowed", len(e.Sidecar.Args), maxPluginArgs)
		return
	}
	for i, arg := range e.Sidecar.Args {
		if strings.Contains(arg, "\x00") || len(arg) > maxText || i == 0 && arg == "" {
			c.add(element("entry.sidecar.args", i), "%s is not an argument: write 1 to %d bytes without a zero byte",
				quote(arg), maxText)
		}
	}
}

// IsPluginFile reports whether a file or folder with that name is a plugin's own. Those whose names
// begin with a dot, and those that Python makes, are not.
func IsPluginFile(name string) bool { return !strings.HasPrefix(name, ".") && name != "__pycache__" }

// checkPlugins checks the deployment's plugins.
func checkPlugins(c *checker, plugins map[string]Plugin, inCloud bool) {
	if len(plugins) == 0 {
		return
	}
	if inCloud {
		c.add("plugins", "the machines of a cloud have no folder with them: remove them")
		return
	}
	if len(plugins) > maxPlugins {
		c.add("plugins", "has %d plugins, at most %d are allowed", len(plugins), maxPlugins)
		return
	}
	for _, name := range pluginNames(plugins) {
		at := join("plugins", name)
		c.label(at, name, maxGraderName, "")
		plugins[name].check(c, at)
	}
}

func (p Plugin) check(c *checker, at string) {
	if p.Path == "" {
		c.add(at+".path", "missing: name the folder with the plugin's %s", PluginFile)
	}
	c.text(at+".path", p.Path, maxText)
	c.text(at+".version", p.Version, maxOption)
	if id := p.ContentID; id != "" && (len(id) != contentIDCharacters || strings.Trim(id, "0123456789abcdef") != "") {
		c.add(at+".content_id", "%s is not a content id: write its %d hexadecimal digits, or remove it",
			quote(p.ContentID), contentIDCharacters)
	}
	c.integer(at+".batch", &p.Batch, 1, maxGraderBatch, "")
	c.integer(at+".concurrency", &p.Concurrency, 1, maxGraderConcurrency, "")
	c.integer(at+".retries", &p.Retries, 0, maxGraderRetries, "")
	c.positive(at+".timeout", p.Timeout)
	c.positive(at+".max_wait", p.MaxWait)
	if p.Timeout > p.MaxWait {
		c.add(at+".max_wait", "must be at least timeout (%s), is %s", p.Timeout.Std(), p.MaxWait.Std())
	}
}

// noPlugin says that the deployment lacks a plugin.
func noPlugin(name string, have map[string]Plugin) string {
	if len(have) == 0 {
		return fmt.Sprintf("the deployment has no plugin %s: add [plugins.%s] with its path to its config", quote(name),
			name)
	}
	return fmt.Sprintf("the deployment has no plugin %s: use one of %s", quote(name),
		strings.Join(pluginNames(have), ", "))
}
