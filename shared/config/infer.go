package config

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/bmatcuk/doublestar/v4"
)

const maxWorkers = 1024

// Run returns the config of the run that the file describes.
func (f Infer) Run() Run {
	r := DefaultRun()
	r.Model = f.Model
	r.Sampling = f.Sampling
	r.Request = f.Request
	r.Input.Dialect = f.Input.Dialect
	r.Shard = f.Shard
	r.Limits = f.Limits
	r.Dedupe = f.Dedupe
	r.Grades = f.Grades
	return r
}

// StateDir returns the folder of the run's state: storage.path, else
// <output.dir>/.rollout.
func (f Infer) StateDir() string {
	if f.Storage.Path != "" {
		return f.Storage.Path
	}
	return filepath.Join(f.Output.Dir, ".rollout")
}

// Check returns the problems of a file that was changed by flags. The error is
// Invalid and holds Problems.
func (f Infer) Check() error {
	c := newChecker("", nil)
	f.check(c)
	return c.err()
}

// Secrets returns the names of all secrets that the file names: there is no
// allowlist beside them.
func (f Infer) Secrets() (names []string) {
	if f.Engine.Secret != "" {
		names = append(names, f.Engine.Secret)
	}
	names = append(names, f.Engine.Request.secretsOf()...)
	for _, name := range slices.Sorted(maps.Keys(f.Graders)) {
		if s := f.Graders[name].Secret; s != "" && !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return names
}

func (f Infer) check(c *checker) {
	c.schema("schema_version", f.SchemaVersion)
	if f.Model.URI == "" {
		c.add("model.uri", "missing: name the model, such as \"Qwen/Qwen2.5-0.5B-Instruct\"")
	}
	f.Model.check(c, "model")
	f.Sampling.check(c, "sampling")
	f.Request.check(c, "request", false)
	f.checkPaths(c)
	c.dialect("input.dialect", f.Input.Dialect)
	c.integer("workers.count", &f.Workers.Count, 1, maxWorkers, "")
	f.Engine.check(c, "engine")
	f.Shard.check(c, "shard")
	f.Limits.check(c, "limits")
	f.Dedupe.check(c, "dedupe")
	checkGrades(c, "grade", f.Grades, f.Dedupe)
	checkGraders(c, f.Graders, f.Secrets())
	checkPlugins(c, f.Plugins, false)
	c.services("grade", f.Grades, f.Graders, f.Plugins)
	f.Health.check(c, "health")
	f.Worker.check(c, "worker")
}

// checkPaths refuses a glob that would read the run's own output.
func (f Infer) checkPaths(c *checker) {
	c.text("input.glob", f.Input.Glob, maxText)
	c.text("output.dir", f.Output.Dir, maxText)
	c.text("storage.path", f.Storage.Path, maxText)
	WorkStorage{KeepWork: f.Storage.KeepWork}.check(c, "storage", false)
	globOK := doublestar.ValidatePathPattern(f.Input.Glob)
	switch {
	case f.Input.Glob == "":
		c.add("input.glob", "missing: name the prompts files, such as \"data/prompts/*.jsonl\"")
	case !globOK:
		c.add("input.glob", "%s is not a valid pattern: close its brackets and braces", quote(f.Input.Glob))
	}
	if f.Output.Dir == "" {
		c.add("output.dir", "missing: name the folder for completions.jsonl, such as \"data/completions\"")
		return
	}
	glob := filepath.Clean(f.Input.Glob)
	for _, name := range []string{"completions.jsonl", "errors.jsonl"} {
		own, err := doublestar.PathMatch(glob, filepath.Join(f.Output.Dir, name))
		if globOK && f.Input.Glob != "" && err == nil && own {
			c.add("output.dir", "input.glob (%s) would read the run's own %s: write to another folder",
				quote(f.Input.Glob), name)
		}
	}
}
