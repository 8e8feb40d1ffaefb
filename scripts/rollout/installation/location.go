package installation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"rollout/shared/config"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
)

// Location names an installation.
type Location struct {
	Dir   string // with its rollout.toml; a laptop's state and bucket are there, too
	Cloud string // the provider that it must be at; "" is a laptop
}

// Flags are the arguments that name the place, to be copied.
func (p Location) Flags() string {
	switch {
	case p.Cloud == "":
		return "--dir " + p.Dir
	case p.Dir == ".":
		return "--cloud " + p.Cloud
	}
	return "--cloud " + p.Cloud + " --dir " + p.Dir
}

// deployment reads the config of a stack in a cloud. That there is none, or one
// of somewhere else, is an error of the command line.
func (p Location) deployment() (config.Deployment, error) {
	return ReadCloudDeployment(filepath.Join(p.Dir, local.DeploymentFile), p.Cloud, "--dir")
}

// ReadCloudDeployment reads the config file of a stack at the provider. That there is
// none, or one of somewhere else, is Invalid; flag is what names the file, or
// its folder.
func ReadCloudDeployment(path, provider, flag string) (config.Deployment, error) {
	if provider != config.ProviderAWS {
		return config.Deployment{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.32q is no provider of this version", provider),
			Remedy: "the only one is " + config.ProviderAWS}
	}
	src, err := local.ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return config.Deployment{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("there is no file %s", path),
			Remedy: "say with " + flag + " where the config is that was deployed; examples/aws.toml is a first one"}
	}
	if err != nil {
		return config.Deployment{}, err
	}
	d, err := config.ParseDeployment(path, src)
	switch {
	case err != nil:
		return d, err
	case d.Cloud.Provider == "":
		return d, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s has no [cloud]: it is of an installation on this machine", path),
			Remedy: "say with " + flag + " where the config is that was deployed"}
	case d.Cloud.Provider != provider:
		return d, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is of an installation at %s, not %s", path, d.Cloud.Provider, provider),
			Remedy: "name the provider that it says"}
	}
	return d, nil
}
