package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/localstack/subprocess"
	"rollout/shared/record"
)

// product is an installation with one input, whose `rollout up --once` runs.
type product struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	stderr string // path
	ended  chan struct{}
}

// job is one input with its configs.
type job struct {
	engine     string // as --engine takes it
	deployment string // more of rollout.toml
	run        string // more of the run's config
	input      string // lines
}

// begin starts a run of the job.
func begin(t *testing.T, j job) *product {
	t.Helper()
	p := &product{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	for name, content := range map[string]string{
		"rollout.toml":           "schema_version = 1\n" + j.deployment,
		"bucket/prompts/x.toml":  "schema_version = 1\n" + j.run,
		"bucket/prompts/x.jsonl": j.input,
	} {
		path := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Minute) // an upload in progress has a newer time
	for _, name := range []string{"x.toml", "x.jsonl"} {
		if err := os.Chtimes(filepath.Join(p.dir, "bucket/prompts", name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	p.stderr = filepath.Join(p.dir, "up.log")
	log, err := os.Create(p.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	p.cmd = exec.Command(rollout, "up", "--dir", p.dir, "--engine", j.engine, "--once", "--listen", "off")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := subprocess.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its outcome is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("rollout up:\n%s", tail(p.stderr))
		}
	})
	return p
}

// status is the run's status; ok is false before the run exists.
func (p *product) status() (s status.Status, ok bool) {
	p.t.Helper()
	out, err := exec.Command(rollout, "status", "--dir", p.dir, "--json").Output()
	if err != nil {
		return s, false // there is no state yet
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return s, json.Unmarshal(line, &s) == nil
}

// awaitRows waits until at least n items have a row. It fails the test if the run ends
// before.
func (p *product) awaitRows(n uint64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s, ok := p.status(); ok && s.Items.Processed() >= n {
				return
			}
		case <-p.ended:
			p.t.Fatalf("the run ended before %d of its items had a row", n)
		case <-ctx.Done():
			p.t.Fatalf("fewer than %d items have a row after %s", n, patience)
		}
	}
}

// outcome is what a run left, without what differs in every run.
type outcome struct {
	completions, errors []string // lines
	summary             record.Summary
}

// volatile matches the parts of a row that differ between two runs: its time, and how
// many tokens of the prompt the server still had from earlier requests.
var volatile = regexp.MustCompile(`("generated_at":)"[^"]*"|("cached_tokens":)\d+`)

// outcome waits until the run has ended and reads what it left.
func (p *product) outcome() outcome {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the run has not ended after %s", patience)
	}
	found, err := filepath.Glob(filepath.Join(p.dir, "bucket", "runs", "*"))
	if err != nil || len(found) != 1 {
		p.t.Fatalf("there are %d runs, want 1: %v", len(found), err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(found[0], name))
		if err != nil {
			p.t.Fatal(err)
		}
		return string(b)
	}
	o := outcome{
		completions: lines(volatile.ReplaceAllString(read(record.CompletionsFile), `$1$2""`)),
		errors:      lines(read(record.ErrorsFile)),
	}
	if err := json.Unmarshal([]byte(read(record.SummaryFile)), &o.summary); err != nil {
		p.t.Fatal(err)
	}
	return o
}

// wantComplete checks that each of n items has an answer and none an error.
func (o outcome) wantComplete(t *testing.T, n int) {
	t.Helper()
	if len(o.completions) != n || len(o.errors) != 0 || o.summary.Completed != uint64(n) {
		t.Fatalf("%d answers and %d errors, want %d and none: summary %+v, errors %.1000s",
			len(o.completions), len(o.errors), n, o.summary, strings.Join(o.errors, "\n"))
	}
}

// decode decodes a row into a value.
func decode[T any](t *testing.T, row string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(row), &v); err != nil {
		t.Fatalf("a row is not JSON: %v: %s", err, row)
	}
	return v
}

// lines splits text at its line feeds.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// examples are the example prompts, repeated with different ids.
func examples(t *testing.T, times int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "examples", "prompts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i := range times {
		for _, l := range lines(string(b)) {
			p := decode[map[string]any](t, l)
			p["id"] = fmt.Sprintf("%s-%d", p["id"], i)
			row, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(row, '\n'))
		}
	}
	return out.String()
}

// greedy is the part of a run's config for answers that are the same every time.
const greedy = `
[sampling]
temperature = 0
max_tokens = 64
stop = ["\n"]
[shard]
items = 16
`
