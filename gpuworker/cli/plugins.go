package cli

import (
	"context"
	"errors"

	"github.com/spf13/pflag"

	"rollout/gpuworker/plugin"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// AddPluginFlags adds the flags of commands that load plugins.
func AddPluginFlags(fs *pflag.FlagSet, paths *[]string, hotReload *bool) {
	fs.StringArrayVar(paths, "plugin", nil,
		"load the plugin in this `folder`, besides those of the config (repeatable); see examples/plugins")
	fs.BoolVar(hotReload, "hot-reload", false, "load a plugin again when its files change, while you write it: runs are "+
		"then not pinned to its files")
}

// withPlugins returns the deployment with the plugins of this machine.
func (f flags) withPlugins(d config.Deployment) (config.Deployment, error) {
	switch {
	case f.join != "":
		return plugin.Elsewhere(d, f.plugins)
	case f.cloud != "" && len(f.plugins) > 0:
		return d, &fault.Error{Kind: fault.Invalid, Remedy: "leave --plugin out",
			Err: errors.New("an installation in a cloud has no plugins")}
	}
	return plugin.Resolve(d, f.dir, f.plugins)
}

// reloads reports whether plugins are loaded again when they change: on the installation's own
// machine alone.
func (f flags) reloads(ctx context.Context, s *workplace) bool {
	if f.hotReload && (f.join != "" || f.cloud != "") {
		s.ports.Log.WarnContext(ctx, "--hot-reload is ignored: it is for the installation's own machine")
		return false
	}
	return f.hotReload
}
