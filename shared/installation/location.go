package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// Location names an installation.
type Location struct {
	Dir   string // holds rollout.toml; for an installation on one machine also its state and bucket
	Cloud string // the provider that the config must name; "" for an installation on one machine
}

// Flags returns the command-line arguments that name the location, quoted for a shell.
func (p Location) Flags() string {
	switch {
	case p.Cloud == "":
		return "--dir " + text.ShellPath(p.Dir)
	case p.Dir == ".":
		return "--cloud " + p.Cloud
	}
	return "--cloud " + p.Cloud + " --dir " + text.ShellPath(p.Dir)
}

// deployment reads the config of an installation in a cloud.
func (p Location) deployment() (config.Deployment, error) {
	return ReadCloudDeployment(filepath.Join(p.Dir, DeploymentFile), p.Cloud, "--dir")
}

// ReadCloudDeployment reads the config file of an installation at the provider.
// A missing file, a config without [cloud] and a config of another provider are
// Invalid. Messages name the flag that sets the file or its folder.
func ReadCloudDeployment(path, provider, flag string) (config.Deployment, error) {
	if _, err := ProviderOf(provider); err != nil {
		return config.Deployment{}, err
	}
	src, err := ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Deployment{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there is no file %s", path),
			Remedy: "name the deployed config with " + flag + "; examples/" + provider + ".toml is an example"}
	}
	if err != nil {
		return config.Deployment{}, err
	}
	d, err := config.ParseDeployment(path, src)
	switch {
	case err != nil:
		return d, err
	case !d.Cloud.Configured():
		return d, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s has no [cloud]: it describes an installation on this machine", path),
			Remedy: "name the deployed config with " + flag}
	case d.Cloud.Provider != provider:
		return d, &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("%s describes an installation at %s, not %s", path, d.Cloud.Provider, provider),
			Remedy: "use --cloud " + d.Cloud.Provider + ", or name another config with " + flag}
	}
	return d, nil
}
