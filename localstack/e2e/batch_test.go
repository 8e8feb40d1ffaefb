package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/localstack/scenarios"
)

// batch is a folder with a config for `rollout infer batch`.
type batch struct {
	t      *testing.T
	folder string
	config string
}

// newBatch makes a folder with prompts and a config whose engine is at url.
// more is added to the config.
func newBatch(t *testing.T, prompts, url, more string) batch {
	t.Helper()
	b := batch{t: t, folder: t.TempDir()}
	write(t, b.path("in/prompts.jsonl"), prompts)
	b.config = write(t, b.path("batch.toml"), fmt.Sprintf(`
[model]
uri = %q
[engine]
url = %q
[input]
glob = "in/*.jsonl"
[output]
dir = "out"
`, model, url)+withHealth(more))
	return b
}

func (b batch) path(name string) string { return filepath.Join(b.folder, name) }

// infer starts `rollout infer batch` in the folder.
func (b batch) infer(args ...string) *process {
	b.t.Helper()
	return launchIn(b.t, b.folder, rollout, append([]string{"infer", "batch", "--config", "batch.toml"}, args...)...)
}

// runID is the id of the run, which the first start writes to a file.
func (b batch) runID() string { return strings.TrimSpace(read(b.t, b.path("out/run-id"))) }

// oneByOne makes each item a shard and sends one request at a time.
const oneByOne = `
[worker]
in_flight = 1
[shard]
items = 1
`

func completed(p *process) int { return strings.Count(p.stdoutText(), `"event":"sample_completed"`) }

// C13: the process is killed after the third of eight answers and resumed. The
// output has eight rows in input order, and committed items are not requested
// again.
func TestC13ResumedBatchAnswersEachItemOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, "--latency", "150ms")
	b := newBatch(t, simplePrompts(8), s.url, oneByOne)
	first := b.infer("--events")
	eventually(t, "three samples are completed", func() bool { return completed(first) >= 3 })
	first.kill()
	before := completed(first)
	if before >= 8 {
		t.Fatalf("the batch ended before it could be killed")
	}
	if _, err := os.Stat(b.path("out/completions.jsonl")); !os.IsNotExist(err) {
		t.Errorf("completions.jsonl exists before the run has ended: %v", err)
	}

	second := b.infer("--events", "--resume", b.runID())
	second.wantExit(0)
	o := readOutcome(t, b.path("out"))
	if want := []string{"00", "01", "02", "03", "04", "05", "06", "07"}; !slices.Equal(o.ids(t), want) {
		t.Errorf("ids are %q, want %q", o.ids(t), want)
	}
	if o.Errors != "" {
		t.Errorf("errors.jsonl has %q", o.Errors)
	}
	// I5: the killed process had at most one answer that it had not committed.
	if again := completed(second); again > 8-before+1 {
		t.Errorf("%d answers before the kill, %d after: committed items were requested again", before, again)
	}
}

// C43: resuming a finished run sends no request and changes no file.
func TestC43ResumeOfAFinishedBatchDoesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	b := newBatch(t, simplePrompts(20), s.url, "")
	b.infer().wantExit(0)
	want, asked := readOutcome(t, b.path("out")), s.requests()
	for _, args := range [][]string{{"--resume", b.runID()}, {}, {"--workers", "2"}} {
		b.infer(args...).wantExit(0)
		wantSame(t, readOutcome(t, b.path("out")), want)
	}
	if again := s.requests() - asked; again != 0 {
		t.Errorf("%d requests were sent again", again)
	}
}

// C43: eight workers start a run and three finish it, with the same bytes.
func TestC43ResumeWithFewerWorkersGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	prompts := scenarios.MixedPrompts(160)
	whole := newBatch(t, prompts, serve(t).url, "")
	whole.infer().wantExit(1) // some of its lines are invalid
	want := readOutcome(t, whole.path("out"))

	s := serveSlowly(t, 100*time.Millisecond)
	b := newBatch(t, prompts, s.url, strings.Replace(oneByOne, "items = 1", "items = 4", 1))
	first := b.infer("--workers", "8")
	eventually(t, "some are answered", func() bool { return s.requests() > 40 })
	first.killGroup()
	b.infer("--workers", "3", "--resume", b.runID()).wantExit(1)
	wantSame(t, readOutcome(t, b.path("out")), want)
}

// A refused batch sends no request and ends with exit code 2.
func TestInferBatchRefusesBadConfigs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	t.Run("refused", func(t *testing.T) { testRefusals(t, s) })
	if n := s.requests(); n > 0 {
		t.Errorf("the engine received %d requests", n)
	}
}

func testRefusals(t *testing.T, s llm) {
	replace := func(old, new string) func(string) string {
		return func(config string) string { return strings.Replace(config, old, new, 1) }
	}
	for _, c := range []struct {
		name       string
		more       string // config
		edit       func(config string) string
		args       []string
		complaints []string
	}{
		{name: "no engine", edit: replace(s.url, ""),
			complaints: []string{"no engine", "--engine", "vLLM", "mock"}},
		{name: "streaming in the sampling settings", more: "[sampling]\nstream = true\n",
			complaints: []string{"sampling.stream"}},
		{name: "output folder holds the input", edit: replace(`"in/*.jsonl"`, `"out/*.jsonl"`),
			complaints: []string{"output.dir", "completions.jsonl"}},
		{name: "resume of an unknown run", args: []string{"--resume", "01JD2ZQ4T5W0M1X9YB7R3K8CVE"},
			complaints: []string{"01JD2ZQ4T5W0M1X9YB7R3K8CVE"}},
		{name: "resume of an invalid run id", args: []string{"--resume", "yesterday"},
			complaints: []string{"yesterday", "26 characters"}},
		{name: "glob without files", edit: replace(`"in/*.jsonl"`, `"elsewhere/*.jsonl"`),
			complaints: []string{"input.glob", "elsewhere"}},
		{name: "unknown key", more: "[sampling]\ntemprature = 1\n", complaints: []string{"temprature", "temperature"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBatch(t, simplePrompts(3), s.url, c.more)
			if c.edit != nil {
				write(t, b.config, c.edit(read(t, b.config)))
			}
			p := b.infer(c.args...)
			p.wantExit(2)
			p.wantStderr(c.complaints...)
		})
	}
}

func TestResumeWithAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	b := newBatch(t, simplePrompts(3), serve(t).url, "")
	b.infer().wantExit(0)
	want := readOutcome(t, b.path("out"))
	write(t, b.config, strings.Replace(read(t, b.config), `"fake"`, `"other"`, 1))
	p := b.infer("--resume", b.runID())
	p.wantExit(2)
	p.wantStderr("fake", "other", "output.dir")
	wantSame(t, readOutcome(t, b.path("out")), want)
}

// A dry run counts the items, fails on invalid lines and repeated ids as the run would,
// and contacts no engine.
func TestDryRunCountsItemsAndBadLines(t *testing.T) {
	t.Parallel()
	b := newBatch(t, scenarios.MixedPrompts(32), "http://127.0.0.1:1/v1", "[workers]\ncount = 3\n")
	p := b.infer("--dry-run")
	p.wantExit(1)
	if want := "dry-run: model=fake inputs=32 bad=5 workers=3\n"; p.stdoutText() != want {
		t.Errorf("it prints %q, want %q", p.stdoutText(), want)
	}
	p.wantStderr("warning", "in/prompts.jsonl:", "5 of 32 lines are invalid (correct them")
	if _, err := os.Stat(b.path("out")); !os.IsNotExist(err) {
		t.Errorf("a dry run left files: %v", err)
	}
	good := newBatch(t, simplePrompts(3), "http://127.0.0.1:1/v1", "").infer("--dry-run")
	good.wantExit(0)
	if want := "dry-run OK: model=fake inputs=3 workers=1\n"; good.stdoutText() != want {
		t.Errorf("for valid lines it prints %q, want %q", good.stdoutText(), want)
	}
}
