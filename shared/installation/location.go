package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// Location names an installation.
type Location struct {
	Dir   string // holds rollout.toml; for an installation on one machine also its state and bucket
	Cloud string // the provider that the config must name; "" is an installation on one machine
}

// Flags are the command-line arguments that name the location.
func (p Location) Flags() string {
	switch {
	case p.Cloud == "":
		return "--dir " + p.Dir
	case p.Dir == ".":
		return "--cloud " + p.Cloud
	}
	return "--cloud " + p.Cloud + " --dir " + p.Dir
}

// deployment reads the config of an installation in a cloud.
func (p Location) deployment() (config.Deployment, error) {
	return ReadCloudDeployment(filepath.Join(p.Dir, DeploymentFile), p.Cloud, "--dir")
}

// ReadCloudDeployment reads the config file of an installation at the provider.
// A missing file, and a config of another place, are Invalid. The flag is the one
// that names the file or its folder, for the message.
func ReadCloudDeployment(path, provider, flag string) (config.Deployment, error) {
	if _, err := ProviderOf(provider); err != nil {
		return config.Deployment{}, err
	}
	src, err := ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Deployment{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there is no file %s", path),
			Remedy: "name the deployed config with " + flag + "; examples/" + provider + ".toml is a first one"}
	}
	if err != nil {
		return config.Deployment{}, err
	}
	d, err := config.ParseDeployment(path, src)
	switch {
	case err != nil:
		return d, err
	case !d.Cloud.Configured():
		return d, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s has no [cloud]: it describes an installation on this machine", path),
			Remedy: "name the deployed config with " + flag}
	case d.Cloud.Provider != provider:
		return d, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s describes an installation at %s, not %s", path, d.Cloud.Provider, provider),
			Remedy: "name the provider that the file names"}
	}
	return d, nil
}
