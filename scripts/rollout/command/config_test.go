package command_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
)

func TestConfigSchemaWritesTheSchemaOfAConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, key string }{{"", "sampling"}, {"run", "sampling"}, {"deployment", "pool"}} {
		args := append([]string{"config", "schema"}, strings.Fields(c.name)...)
		var schema struct{ Properties map[string]any }
		r := rollout(t.Context(), args...)
		if err := json.Unmarshal([]byte(r.out), &schema); r.code != 0 || err != nil || schema.Properties[c.key] == nil {
			t.Errorf("%s: %+v, %v: no key %s", args, r, err, c.key)
		}
	}
	check(t, rollout(t.Context(), "config", "schema", "runs"), 2, "",
		"rollout: there is no schema of \"runs\" (name one of run, deployment, infer, train, plugin)\n")
}

// TestFolderComesFromTheEnvironment holds that ROLLOUT_DIR is the default of --dir, and that
// messages name the folder that was used.
func TestFolderComesFromTheEnvironment(t *testing.T) {
	t.Parallel()
	named, other := filepath.Join(t.TempDir(), "named"), filepath.Join(t.TempDir(), "other")
	run := func(args ...string) result {
		var out, errs bytes.Buffer
		code := command.Main(t.Context(), args, command.Env{Out: &out, Err: &errs, Clock: clock.Fixed(noon),
			Getenv: func(name string) string { return map[string]string{"ROLLOUT_DIR": named}[name] }})
		return result{code, out.String(), errs.String()}
	}
	for _, args := range [][]string{{"status"}, {"snapshot", "list"}, {"clean"}, {"pause", "nightly"}} {
		if r := run(args...); r.code == 0 || !strings.Contains(r.err, named) {
			t.Errorf("%s does not name the folder of ROLLOUT_DIR: %+v", args, r)
		}
	}
	if r := run("status", "--dir", other); strings.Contains(r.err, named) || !strings.Contains(r.err, other) {
		t.Errorf("--dir does not count over ROLLOUT_DIR: %+v", r)
	}
}
