package process

import (
	"context"

	"rollout/gpuworker/plugin"
)

// openPlugins loads the plugins of the deployment, whose paths are those of this machine.
func (o Options) openPlugins(ctx context.Context) (*plugin.Host, error) {
	return plugin.Open(ctx, o.Deployment.Plugins, plugin.Options{Builtins: o.Plugins, Log: o.Ports.Log,
		Watch: o.Ports.Watch, Sandbox: o.openSandbox, HotReload: o.HotReload})
}
