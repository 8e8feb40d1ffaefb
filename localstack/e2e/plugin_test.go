package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/core/run"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// keywords copies the sample plugin into a folder of the test.
func keywords(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "keywords")
	if err := os.CopyFS(dir, os.DirFS("../../examples/plugins/keywords")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replaceIn changes a file of a plugin.
func replaceIn(t *testing.T, dir, name, old, changed string) {
	t.Helper()
	path := filepath.Join(dir, name)
	text := read(t, path)
	if !strings.Contains(text, old) {
		t.Fatalf("%s lacks %s", path, old)
	}
	write(t, path, strings.Replace(text, old, changed, 1))
}

// gradedByPlugin is the config of an installation whose runs are scored by the plugin.
func gradedByPlugin(dir string) string {
	return smallShards + `
[[defaults.grade]]
name = "mentions"
kind = "plugin"
plugin = "keywords"
expected = "words"
[plugins.keywords]
trusted = true
path = "` + dir + `"
`
}

const promptsWithWords = `{"id":"a","prompt":"x","words":["fake","no such word"]}
{"id":"b","prompt":"y"}
`

// A sidecar in Python scores the answers of an installation with worker processes. A run that was
// paused is not continued with other files of the plugin: it pauses again, and says so. With the
// former files it goes on.
func TestRunsAreScoredByTheirOwnPlugin(t *testing.T) {
	t.Parallel()
	dir := keywords(t)
	i := install(t, serve(t).url, 1, gradedByPlugin(dir))
	first := i.submit(promptsFile(t, promptsWithWords))
	if s := i.awaitEnd(first); s.Phase != run.Completed {
		t.Fatalf("the run is %s", s.Phase)
	}
	lines := strings.Split(strings.TrimSpace(read(t, i.bucket(record.OutputKey(first, record.CompletionsFile)))), "\n")
	for n, want := range []string{"a", "b"} {
		r, err := grade.ReadRow([]byte(lines[n]))
		got := r.Scores["mentions"]
		var row struct{ ID, Completion string }
		if err := json.Unmarshal([]byte(lines[n]), &row); err != nil || row.ID != want {
			t.Fatalf("%v: %s", err, lines[n])
		}
		share := 0.0
		if strings.Contains(strings.ToLower(row.Completion), "fake") {
			share = 0.5
		}
		switch {
		case err != nil:
			t.Error(err)
		case row.ID == "a" && (got.Score == nil || *got.Score != share):
			t.Errorf("%s has the score %v, want %v", row.Completion, got, share)
		case row.ID == "b" && got.Cause != grade.NoExpected:
			t.Errorf("a line without words has %v", got)
		}
	}
	i.up.killGroup() // with its workers, which would go on with what they have
	i.engine = serve(t, "--latency", "10s").url
	i.start()
	second := i.submit(promptsFile(t, promptsWithWords))
	eventually(t, "the run is running", func() bool { s, ok := i.show(second); return ok && s.Phase == run.Running })
	i.up.killGroup()
	replaceIn(t, dir, "keywords.py", "in answer for word", "in answer + word for word")
	i.engine = serve(t).url
	i.start()
	i.await(second, run.Paused)
	if !i.logged("other files of the plugin keywords") {
		t.Error("the log does not say that the plugin is another one")
	}
	i.up.killGroup()
	replaceIn(t, dir, "keywords.py", "in answer + word for word", "in answer for word")
	i.start()
	i.control("resume", second)
	if s := i.awaitEnd(second); s.Phase != run.Completed {
		t.Errorf("the run is %s", s.Phase)
	}
}

// A plugin that is compiled into the program scores a batch with two worker processes, which are of
// the same program. Another program refuses the plugin.
func TestCompiledInPluginsScoreBatches(t *testing.T) {
	t.Parallel()
	b := newBatch(t, simplePrompts(20), serve(t).url, `
[workers]
count = 2
[plugins.length]
path = "length"
[[grade]]
name = "bytes"
kind = "plugin"
plugin = "length"
`)
	write(t, b.path("length/rollout-plugin.toml"), `
name = "length"
version = "1"
kind = "grader"
mode = "builtin"
[entry.builtin]
factory = "length"
`)
	p := launchIn(t, b.folder, withBuiltin, "infer", "batch", "--config", "batch.toml")
	p.wantExit(0)
	lines := strings.Split(strings.TrimSpace(read(t, b.path("out/completions.jsonl"))), "\n")
	if len(lines) != 20 {
		t.Fatalf("%d rows", len(lines))
	}
	for _, line := range lines {
		var row struct{ Completion string }
		r, err := grade.ReadRow([]byte(line))
		if err == nil {
			err = json.Unmarshal([]byte(line), &row)
		}
		if err != nil || r.Score == nil || *r.Score != float64(len(row.Completion)) {
			t.Errorf("%v: %s", err, line)
		}
	}
	if err := os.RemoveAll(b.path("out")); err != nil {
		t.Fatal(err)
	}
	other := b.infer("--workers", "1")
	other.wantExit(2)
	other.wantStderr("this program has no builtin plugin \"length\"")
}
