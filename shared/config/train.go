package config

import (
	"path/filepath"
	"strings"
)

// Train is the file of `rollout train --config`.
type Train struct {
	SchemaVersion int          `toml:"schema_version"` // optional here
	Algorithm     Algorithm    `toml:"algorithm"`
	Snapshot      Snapshots    `toml:"snapshot"`
	Output        TrainOutput  `toml:"output"`
	Storage       TrainStorage `toml:"storage"`
}

// TrainOutput names the folder of the loss curve and the run's id.
type TrainOutput struct {
	Dir string `toml:"dir"` // default: the config's path without its extension
}

// TrainStorage names the folder of snapshots. Trainings with the same folder can
// begin with each other's snapshots.
type TrainStorage struct {
	Path     string          `toml:"path"`    // default: <output.dir>/.rollout
	Backend  string          `toml:"backend"` // "embedded" or ""
	Embedded EmbeddedStorage `toml:"embedded"`
}

// EmbeddedStorage is an alternative spelling of TrainStorage.Path.
type EmbeddedStorage struct {
	Path string `toml:"path"`
}

// DefaultTrain returns the default settings. They are valid once the caller sets
// the algorithm.
func DefaultTrain() Train { return Train{SchemaVersion: SchemaVersion, Snapshot: DefaultSnapshots()} }

// ParseTrain writes the file of `rollout train` over DefaultTrain. Messages name
// the source by file. Errors are Invalid and hold Problems.
func ParseTrain(file string, src []byte) (Train, error) {
	t := DefaultTrain()
	err := parse(file, src, versionOptional, &t, func(c *checker) { t.check(c) })
	return t, err
}

// OutputDir returns the folder for the results of a training; file is the path of
// its config.
func (t Train) OutputDir(file string) string {
	if t.Output.Dir != "" {
		return t.Output.Dir
	}
	return strings.TrimSuffix(file, filepath.Ext(file))
}

// StateDir returns the folder for the snapshots of a training; file is the path
// of its config.
func (t Train) StateDir(file string) string {
	switch {
	case t.Storage.Path != "":
		return t.Storage.Path
	case t.Storage.Embedded.Path != "":
		return t.Storage.Embedded.Path
	}
	return filepath.Join(t.OutputDir(file), ".rollout")
}

// Check returns the problems of a file that was changed by flags. The error is
// Invalid and holds Problems.
func (t Train) Check() error {
	c := newChecker("", nil)
	t.check(c)
	return c.err()
}

func (t Train) check(c *checker) {
	c.schema("schema_version", t.SchemaVersion)
	t.Algorithm.check(c, "algorithm", datasetNamed)
	t.Snapshot.check(c, "snapshot")
	c.text("output.dir", t.Output.Dir, maxText)
	c.text("storage.path", t.Storage.Path, maxText)
	c.text("storage.embedded.path", t.Storage.Embedded.Path, maxText)
	if b := t.Storage.Backend; b != "" && b != "embedded" {
		c.oneOf("storage.backend", "backend of a training's storage", b, []string{"embedded"})
	}
	if t.Storage.Path != "" && t.Storage.Embedded.Path != "" {
		c.add("storage.embedded.path", "storage.path also names the folder: remove one of them")
	}
}

// normalize replaces shorthands in the file's tree before it is bound.
func (*Train) normalize(c *checker, tree map[string]any) {
	normalizeAlgorithm(c, tree["algorithm"], "algorithm")
}
