package batch

import (
	"bytes"
	"path/filepath"

	"github.com/BurntSushi/toml"

	"rollout/shared/config"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
)

// WriteDeployment writes the installation's config that the batch's amounts
// to, so that worker processes and `rollout status` see the same.
func WriteDeployment(dir string, c config.Infer) error {
	d := struct {
		SchemaVersion int           `toml:"schema_version"`
		Health        config.Health `toml:"health"`
		Worker        config.Worker `toml:"worker"`
		Engine        config.Engine `toml:"engine"`
		Secrets       []string      `toml:"secrets,omitempty"`
		Pools         []config.Pool `toml:"pool"`
	}{config.SchemaVersion, c.Health, c.Worker, c.Engine, nil, []config.Pool{{Name: "default", Model: c.Model.URI}}}
	if c.Engine.Secret != "" {
		d.Secrets = []string{c.Engine.Secret}
	}
	var b bytes.Buffer
	b.WriteString("# Written by `rollout infer batch` from its own config at every start.\n")
	if err := toml.NewEncoder(&b).Encode(d); err != nil {
		return fault.WithKind(fault.Internal, err, "encode the installation's config")
	}
	return writeWhole(filepath.Join(dir, local.DeploymentFile), b.Bytes())
}
