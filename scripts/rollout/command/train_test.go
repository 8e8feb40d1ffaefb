package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// trainingFixture is a folder with the config and the dataset of a training of two steps.
type trainingFixture struct {
	t         *testing.T
	dir, file string // the config's path
}

const trainingRows = "{\"prompt\":\"a \",\"completion\":\"b\"}\n{\"prompt\":\"c \",\"completion\":\"d\"}\n"

func newTrainingFixture(t *testing.T) trainingFixture {
	t.Helper()
	dir := t.TempDir()
	f := trainingFixture{t, dir, filepath.Join(dir, "course.toml")}
	f.write("rows.jsonl", trainingRows)
	f.write("course.toml", fmt.Sprintf(`[algorithm.sft]
base_model = "rollout/tiny"
minibatch_size = 1
dataset.path = %q
optimizer.lr = 0.001
budget.max_steps = 2
packing.max_seq_len = 8
`, filepath.Join(dir, "rows.jsonl")))
	return f
}

func (f trainingFixture) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// change replaces a part of the config.
func (f trainingFixture) change(old, with string) {
	f.t.Helper()
	b, err := os.ReadFile(f.file)
	if err != nil {
		f.t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		f.t.Fatalf("the config has no %q", old)
	}
	f.write("course.toml", strings.Replace(string(b), old, with, 1))
}

func (f trainingFixture) train(args ...string) result {
	return rollout(f.t.Context(), append([]string{"train", "sft", "--config", f.file}, args...)...)
}

func TestTrainDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	f := newTrainingFixture(t)
	r := f.train("--dry-run")
	if want := "dry-run OK: algorithm=sft model=rollout/tiny minibatch=1 dataset=" + f.dir +
		"/rows.jsonl\n"; r.code != 0 || r.out != want || r.err != "" {
		t.Errorf("got %+v\nwant %s", r, want)
	}
	if entries, err := os.ReadDir(f.dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestInvalidTrainingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, with string
		args      []string
		want      string
	}{
		"minibatch_size": {"minibatch_size = 1", "minibatch_size = 0", nil,
			"course.toml:3: algorithm.sft.minibatch_size: must be at least 1, is 0"},
		"lr": {"lr = 0.001", "lr = 0.0", nil, "course.toml:5: algorithm.sft.optimizer.lr: must be above 0"},
		"an unknown key": {"packing.max", "packings.max", nil,
			"course.toml:7: algorithm.sft.packings: unknown key; did you mean packing?"},
		"another model": {"rollout/tiny", "Qwen/Qwen2.5-0.5B-Instruct", nil,
			`"Qwen/Qwen2.5-0.5B-Instruct" can't be trained here`},
		"no dataset":     {"rows.jsonl", "none.jsonl", nil, "none.jsonl does not exist (set the path"},
		"another kind":   {"[algorithm.sft]", "[algorithm.rm]\nmax_seq_len = 8\n[algorithm.rm.packing]", nil, "unknown key"},
		"a long row":     {"max_seq_len = 8", "max_seq_len = 100000", nil, "max_seq_len is 100000, the model's context is"},
		"too short rows": {"max_seq_len = 8", "max_seq_len = 2", nil, "max_seq_len is 2: rows need at least 4 tokens"},
		"an argument":    {"", "", []string{"again"}, `unexpected argument "again"`},
		"threads":        {"", "", []string{"--threads", "-1"}, "--threads must be between 0 and 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTrainingFixture(t)
			f.change(c.old, c.with)
			for _, dry := range [][]string{{"--dry-run"}, nil} {
				if r := f.train(append(dry, c.args...)...); r.code != 2 || !strings.Contains(r.err, c.want) || r.out != "" {
					t.Errorf("%v: got %+v\nwant %s", dry, r, c.want)
				}
			}
		})
	}
	if r := rollout(t.Context(), "train", "sft"); r.code != 2 || !strings.Contains(r.err, "--config is missing") {
		t.Errorf("got %+v", r)
	}
	f := newTrainingFixture(t)
	if r := rollout(t.Context(), "train", "rm", "--config", f.file); r.code != 2 ||
		!strings.Contains(r.err, `algorithm.kind is "sft" (start it with `+"`rollout train sft`)") {
		t.Errorf("got %+v", r)
	}
	f.write("rows.jsonl", trainingRows+"{\"prompt\":1}\nx\n")
	if r := f.train("--dry-run"); r.code != 2 ||
		!strings.Contains(r.err, "rows.jsonl:3: /prompt must not be a number\n") ||
		!strings.Contains(r.err, "rows.jsonl:4: the row is not JSON") {
		t.Errorf("got %+v", r)
	}
}

func TestTrainingWritesCurveAndSnapshot(t *testing.T) {
	t.Parallel()
	f := newTrainingFixture(t)
	first := f.train()
	pattern := regexp.MustCompile(`^step        2 of 2
loss        \d+\.\d{4} at first, \d+\.\d{4} at last
evaluation  loss \d+\.\d{4} on 2 rows of the dataset
curve       ` + f.dir + `/course/loss\.svg
snapshot    ([0-9a-f]{64})
$`)
	m := pattern.FindStringSubmatch(first.out)
	if first.code != 0 || m == nil {
		t.Fatalf("got %+v", first)
	}
	if svg, err := os.ReadFile(filepath.Join(f.dir, "course", "loss.svg")); err != nil ||
		!strings.HasPrefix(string(svg), "<svg ") {
		t.Errorf("the curve is %.40q, %v", svg, err)
	}
	if listed := rollout(t.Context(), "snapshot", "show", m[1], "--dir",
		filepath.Join(f.dir, "course", ".rollout")); listed.code != 0 || !strings.Contains(listed.out, m[1]) {
		t.Errorf("the snapshot is not shown: %+v", listed)
	}

	log := f.train("--log-level", "info").err
	for _, want := range []string{"msg=train_start run=", "msg=train_step run=", "step=2 loss=", "msg=train_end run=",
		"snapshot=" + m[1]} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q: %s", want, log)
		}
	}

	again := f.train("--json", "--threads", "2")
	lines := strings.Split(strings.TrimSpace(again.out), "\n")
	var end struct{ Snapshot string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || len(lines) != 3 || end.Snapshot != m[1] {
		t.Errorf("again, on two threads: %+v, want the snapshot %s", again, m[1])
	}

	f.write("rows.jsonl", trainingRows+"{\"prompt\":\"a row that is too long \",\"completion\":\"for this\"}\n")
	if long := f.train(); long.code != 0 || !strings.Contains(long.out,
		"truncated   1 of them were longer than max_seq_len\n") {
		t.Errorf("with a long row: %+v", long)
	}
	f.write("rows.jsonl", trainingRows)

	on := f.train("--resume", m[1][:10])
	if on.code != 0 || !strings.Contains(on.err, "resuming from snapshot "+m[1]+" at step 2 of 2\n") ||
		!strings.Contains(on.out, m[1]) {
		t.Errorf("gone on with at its end: %+v", on)
	}
}

func TestInvalidResumesAreRefused(t *testing.T) {
	t.Parallel()
	f := newTrainingFixture(t)
	missing := strings.Repeat("0a", 32)
	if r := f.train("--resume", missing); r.code != 2 || !strings.Contains(r.err, "snapshot not found: "+missing) {
		t.Errorf("no such snapshot: %+v", r)
	}
	if r := f.train("--resume", "latest"); r.code != 0 ||
		!strings.Contains(r.err, "there is no snapshot in "+f.dir+"/course yet: starting from the beginning\n") {
		t.Errorf("no snapshot yet: %+v", r)
	}
	f.change("lr = 0.001", "lr = 0.002")
	if r := f.train("--resume", "latest"); r.code != 2 ||
		!strings.Contains(r.err, "the state was trained with algorithm.sft.optimizer.lr = 0.001, now it is 0.002") {
		t.Errorf("another learning rate: %+v", r)
	}
	f.write(filepath.Join("course", "run-id"), "x")
	if r := f.train("--resume", "latest"); r.code != 2 || !strings.Contains(r.err, "run-id does not contain a run id") {
		t.Errorf("a damaged run id: %+v", r)
	}
}
