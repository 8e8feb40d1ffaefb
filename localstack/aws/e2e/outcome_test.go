package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// outcome is what a run left for its user, without the times of its rows.
type outcome struct {
	completions, errors string
	summary             record.Summary
}

// generatedAt matches the only part of a row that differs between two runs (I10).
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// readOutcome reads the files of a run.
func readOutcome(t *testing.T, file func(name string) string) outcome {
	t.Helper()
	o := outcome{completions: generatedAt.ReplaceAllString(file(record.CompletionsFile), `"generated_at":""`),
		errors: file(record.ErrorsFile)}
	if err := json.Unmarshal([]byte(file(record.SummaryFile)), &o.summary); err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(o.completions, "\n") + strings.Count(o.errors, "\n"); rows != int(o.summary.Items) {
		t.Errorf("the files have %d rows, the summary has %d items (I1)", rows, o.summary.Items)
	}
	return o
}

// wantSame checks that two runs of one input left the same files and counts.
func wantSame(t *testing.T, got, want outcome) {
	t.Helper()
	for name, of := range map[string][2]string{record.CompletionsFile: {got.completions, want.completions},
		record.ErrorsFile: {got.errors, want.errors}} {
		if of[0] == of[1] {
			continue
		}
		g, w := strings.Split(of[0], "\n"), strings.Split(of[1], "\n")
		at := 0
		for at < min(len(g), len(w))-1 && g[at] == w[at] {
			at++
		}
		t.Errorf("%s differs at line %d (%d lines, want %d):\n%.300s\nwant\n%.300s", name, at+1, len(g), len(w), g[at], w[at])
	}
	if g, w := got.summary, want.summary; g.Items != w.Items || g.Completed != w.Completed || g.Failed != w.Failed ||
		g.Phase != w.Phase {
		t.Errorf("the summary has phase %s, %d items, %d completed, %d failed; want %s, %d, %d, %d",
			g.Phase, g.Items, g.Completed, g.Failed, w.Phase, w.Items, w.Completed, w.Failed)
	}
}

// local runs the same object with `rollout up` on this machine. config is the text
// of a config beside it.
func local(t *testing.T, s llm, key, content string, config ...string) outcome {
	t.Helper()
	l := laptop{t, t.TempDir(), s.url}
	return l.outcome(l.complete(key, content, config...))
}

// laptop is an installation in a folder of this machine, and the URL of its server.
type laptop struct {
	t           *testing.T
	dir, server string
}

// complete uploads an object, with the text of a config beside it, and completes its
// run. It is the first one of the installation.
func (l laptop) complete(key, content string, config ...string) identity.RunID {
	l.t.Helper()
	object := filepath.Join(l.dir, "bucket", filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(object), 0o755); err != nil {
		l.t.Fatal(err)
	}
	files := map[string]string{filepath.Join(l.dir, "rollout.toml"): "schema_version = 1\n" + smallShards, object: content}
	for _, text := range config {
		files[strings.TrimSuffix(object, ".jsonl")+".toml"] = text
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	err := l.up()
	found, globErr := filepath.Glob(filepath.Join(l.dir, "bucket", "runs", "*", record.SummaryFile))
	if globErr != nil || len(found) != 1 {
		l.t.Fatalf("rollout up has %d runs, want 1: %v", len(found), err)
	}
	return identity.RunID(filepath.Base(filepath.Dir(found[0])))
}

// up ends all runs. It returns an error if items failed.
func (l laptop) up() error {
	_, err := rollout(l.t, nil, "up", "--dir", l.dir, "--engine", l.server+"/v1", "--once", "--listen", "127.0.0.1:0")
	return err
}

// outcome reads the files of a run that has ended.
func (l laptop) outcome(id identity.RunID) outcome {
	l.t.Helper()
	return readOutcome(l.t, func(name string) string {
		return read(l.t, filepath.Join(l.dir, "bucket", filepath.FromSlash(record.OutputKey(id, name))))
	})
}
