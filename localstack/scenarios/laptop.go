package scenarios

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// Laptop is an installation in a folder of this machine.
type Laptop struct {
	t               *testing.T
	program, engine string
	config          string // besides the schema
	dir             string
}

// NewLaptop returns an empty installation. program is the path of rollout, engine the
// address of the server's API, or mock, and config that of the installation, besides the
// schema's version.
func NewLaptop(t *testing.T, program, engine, config string) *Laptop {
	return &Laptop{t: t, program: program, engine: engine, config: config, dir: t.TempDir()}
}

// Complete uploads an object, with the text of a config beside it, and completes its run.
// It is the first one of the installation.
func (l *Laptop) Complete(key, content string, config ...string) identity.RunID {
	l.t.Helper()
	object := l.path(key)
	if err := os.MkdirAll(filepath.Dir(object), 0o755); err != nil {
		l.t.Fatal(err)
	}
	files := map[string]string{filepath.Join(l.dir, "rollout.toml"): "schema_version = 1\n" + l.config, object: content}
	for _, text := range config {
		files[strings.TrimSuffix(object, ".jsonl")+".toml"] = text
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	output := l.up()
	found, err := filepath.Glob(filepath.Join(l.path("runs"), "*", record.SummaryFile))
	if err != nil || len(found) != 1 {
		l.t.Fatalf("rollout up has %d runs, want 1: %s", len(found), output)
	}
	return identity.RunID(filepath.Base(filepath.Dir(found[0])))
}

// path is the path of an object.
func (l *Laptop) path(key string) string {
	return filepath.Join(l.dir, "bucket", filepath.FromSlash(key))
}

// up ends all runs. It fails if items fail, which tests provoke.
func (l *Laptop) up() (output string) {
	output, _ = Rollout(l.t, l.program, nil, "up", "--dir", l.dir, "--engine", l.engine, "--once", "--listen", "off")
	return output
}

// Outcome reads the files of a run that has ended.
func (l *Laptop) Outcome(id identity.RunID) Outcome {
	l.t.Helper()
	return ReadOutcome(l.t, func(name string) string { return read(l.t, l.path(record.OutputKey(id, name))) })
}

// Files returns all files of a run by name, without the times of rows.
func (l *Laptop) Files(id identity.RunID) map[string]string {
	l.t.Helper()
	dir, all := l.path(record.OutputKey(id, "")), map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = WithoutTimes(read(l.t, path))
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// Local completes the run of an object on a laptop of its own; see Laptop.Complete.
func Local(t *testing.T, program, engine, key, content string, config ...string) Outcome {
	t.Helper()
	l := NewLaptop(t, program, engine, SmallShards)
	return l.Outcome(l.Complete(key, content, config...))
}
