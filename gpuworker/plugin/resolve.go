package plugin

import (
	"maps"
	"path/filepath"
	"slices"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// Resolve returns the deployment with the plugins as they are on this machine now: with absolute
// paths, and with the version and the content id of their files, to which runs are pinned. Paths
// of the config are relative to dir. Paths in more, which are those of a command line and relative
// to the current folder, add plugins by the names in their manifests, or replace the paths of
// those that the config names. A plugin that can't be read, or is not the one that the config
// wants, is Invalid.
func Resolve(d config.Deployment, dir string, more []string) (config.Deployment, error) {
	for _, path := range more {
		s, err := Read(path)
		if err != nil {
			return d, fault.Wrap(err, "--plugin %s", path)
		}
		p, known := d.Plugins[s.Manifest.Name]
		if !known {
			p = config.DefaultPlugin()
		}
		p.Path = s.Dir
		d = d.WithPlugin(s.Manifest.Name, p)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Plugins)) {
		p := d.Plugins[name]
		if !filepath.IsAbs(p.Path) {
			p.Path = filepath.Join(dir, p.Path)
		}
		s, err := readAs(name, p)
		if err != nil {
			return d, err
		}
		p.Path, p.Version, p.ContentID = s.Dir, s.Manifest.Version, s.ContentID.String()
		d = d.WithPlugin(name, p)
	}
	return d, nil
}

// Elsewhere returns the deployment of another machine with the plugins that this one has, which
// are those of the command line alone. The other machine can't have them trusted here.
func Elsewhere(d config.Deployment, paths []string) (config.Deployment, error) {
	there := d.Plugins
	d.Plugins = nil
	for _, path := range paths {
		s, err := Read(path)
		if err != nil {
			return d, fault.Wrap(err, "--plugin %s", path)
		}
		p, known := there[s.Manifest.Name]
		if !known {
			p = config.DefaultPlugin()
		}
		p.Path, p.Trusted, p.Version, p.ContentID = s.Dir, false, "", ""
		d = d.WithPlugin(s.Manifest.Name, p)
	}
	return d, nil
}
