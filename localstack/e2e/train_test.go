package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	decoder "rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/training"
	"rollout/gpuworker/training/dataset"
	"rollout/gpuworker/training/snapshots"
	"rollout/scripts/rollout/train"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/installation"
	"rollout/shared/snapshot"
)

// trainingFixture is a folder with a small base model and a dataset of each
// kind.
type trainingFixture struct {
	t    *testing.T
	dir  string
	base string // URI of the base model
}

// newTrainingFixture saves an untrained model of a few thousand parameters as a
// snapshot. A step of it takes about a millisecond.
func newTrainingFixture(t *testing.T) trainingFixture {
	t.Helper()
	s := trainingFixture{t: t, dir: t.TempDir()}
	s.write("sft.jsonl", `{"prompt":"the cat ","completion":"sat on the mat"}
{"messages":[{"role":"user","content":"two and two?"},{"role":"assistant","content":"four"}]}
{"prompt":"","completion":"in the beginning"}
`)
	s.write("rm.jsonl", `{"prompt":"2+2? ","chosen":"4","rejected":"5"}
{"prompt":"capital of France? ","chosen":"Paris","rejected":"London"}
`)
	tok, err := tokenizer.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := decoder.New(decoder.Config{Vocab: tok.Vocab(), Width: 16, Layers: 1, Heads: 1, HeadSize: 16, Hidden: 32,
		Context: 64, RopeBase: 10000, NormEpsilon: 1e-5}, 1)
	if err != nil {
		t.Fatal(err)
	}
	file, rows := s.dataset("sft.jsonl")
	defer file()
	fresh := config.DefaultSFT()
	fresh.BaseModel.URI, fresh.Optimizer.LR, fresh.Budget.MaxSteps = config.ModelTiny, 1, 1
	tr, err := training.New(training.Options{Algorithm: config.Algorithm{Kind: config.AlgorithmSFT, SFT: fresh},
		Dataset: rows, Threads: 1,
		Base: training.Base{Model: m, Tokenizer: tok}})
	if err != nil {
		t.Fatal(err)
	}
	l, closeAll, err := installation.OpenLocal(t.Context(), s.path("state"), installation.LocalOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := snapshots.Manager{Store: snapshot.Store{Blobs: l.Ports.Blobs, Docs: l.Ports.Docs, Clock: l.Ports.Clock},
		Run: identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE"), Scratch: s.path("scratch")}.Save(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	if err := closeAll(); err != nil {
		t.Fatal(err)
	}
	s.base = config.SnapshotPrefix + snap.ID
	return s
}

func (s trainingFixture) path(name string) string { return filepath.Join(s.dir, name) }

func (s trainingFixture) write(name, text string) string {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return s.path(name)
}

// config writes a config for a kind of training and returns its path. output
// names the output folder.
func (s trainingFixture) config(kind, output string, steps, every int) string {
	s.t.Helper()
	return s.write(output+".toml", fmt.Sprintf(`
algorithm.kind = %q
storage.path = %q
output.dir = %q
snapshot.every_steps = %d
[algorithm.%s]
base_model = %q
minibatch_size = 2
dataset = { kind = "jsonl_path", path = %q }
optimizer = { kind = "adamw", lr = 1e-3, schedule = "linear", warmup_steps = 3 }
budget.max_steps = %d
`, kind, s.path("state"), s.path(output), every, kind, s.base, s.path(kind+".jsonl"), steps))
}

// lastResult is the last line that `rollout train --json` prints.
func lastResult(t *testing.T, p *process) (r train.Result) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(p.stdoutText()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("the last line is not a result: %v", err)
	}
	return r
}

func TestTrainingKilledTenTimesEndsWithTheSameDigest(t *testing.T) {
	t.Parallel()
	const steps, every, kills = 600, 10, 10
	for _, kind := range []string{config.AlgorithmSFT, config.AlgorithmRM} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newTrainingFixture(t)
			undisturbed := launch(t, rollout, "train", kind, "--config", s.config(kind, "undisturbed", steps, every), "--json")
			undisturbed.wantExit(0)
			want := lastResult(t, undisturbed)
			if !want.Done || want.Step != steps {
				t.Fatalf("the undisturbed training ended with %+v", want)
			}
			rng := rand.New(rand.NewPCG(1, 2)) // the moments of the kills depend on the machine as well
			cfg := s.config(kind, "disturbed", steps, every)
			for killed := range kills {
				p := launch(t, rollout, "train", kind, "--config", cfg, "--json", "--resume", "latest")
				steps := rng.IntN(3 * every)
				eventually(t, "some steps are taken", func() bool { return strings.Count(p.stdoutText(), "\n") > steps })
				<-time.After(time.Duration(rng.IntN(30)) * time.Millisecond)
				p.kill()
				if p.cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("it ended before kill %d", killed+1)
				}
			}
			p := launch(t, rollout, "train", kind, "--config", cfg, "--json", "--resume", "latest")
			p.wantExit(0)
			if got := lastResult(t, p); got.Snapshot != want.Snapshot {
				t.Errorf("the snapshot is %s, want the undisturbed %s", got.Snapshot, want.Snapshot)
			}
			if !strings.Contains(p.stderrText(), "resuming from snapshot") {
				t.Error("it did not resume from a snapshot")
			}
		})
	}
}

func TestSignalEndsTrainingAfterAStepWithASnapshot(t *testing.T) {
	t.Parallel()
	s := newTrainingFixture(t)
	whole := launch(t, rollout, "train", "sft", "--config", s.config("sft", "whole", 2000, 0), "--json")
	whole.wantExit(0)
	cfg := s.config("sft", "stopped", 2000, 0)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := launch(t, rollout, "train", "sft", "--config", cfg, "--json", "--resume", "latest", "--threads", "2")
		eventually(t, "a step is taken", func() bool { return p.stdoutText() != "" })
		p.signal(signal)
		p.wantExit(1)
		r := lastResult(t, p)
		want := fmt.Sprintf("interrupted at step %d of 2000; the state is saved in snapshot %s "+
			"(start the same command with --resume latest to continue)", r.Step, r.Snapshot)
		if r.Done || !strings.Contains(p.stderrText(), want) {
			t.Errorf("after %s the result is %+v, want %s", signal, r, want)
		}
	}
	p := launch(t, rollout, "train", "sft", "--config", cfg, "--json", "--resume", "latest")
	p.wantExit(0)
	if got, want := lastResult(t, p).Snapshot, lastResult(t, whole).Snapshot; got != want {
		t.Errorf("the snapshot is %s, want the uninterrupted %s", got, want)
	}
}

// dataset opens a dataset of examples. close closes its file.
func (s trainingFixture) dataset(name string) (close func(), rows *dataset.Index) {
	s.t.Helper()
	file, err := dataset.OpenFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	rows, err = training.OpenDataset(s.t.Context(), config.AlgorithmSFT, file)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() { _ = file.Close() }, rows
}

// The example's config and dataset train the built-in model.
func TestFineTunedModelAnswersAsTrained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join("..", "..", "examples"))); err != nil {
		t.Fatal(err)
	}
	trained := launchIn(t, dir, rollout, "train", "sft", "--config", "examples/sft-tiny.toml", "--json")
	trained.wantExit(0)
	state := filepath.Join(dir, "out", "sft-tiny", ".rollout")
	server := launch(t, rollout, "serve", "--snapshot", lastResult(t, trained).Snapshot, "--dir", state,
		"--addr", "127.0.0.1:0")
	eventually(t, "the server prints its address", func() bool { return strings.HasSuffix(server.stdoutText(), "/v1\n") })
	body := strings.NewReader(
		`{"messages":[{"role":"user","content":"Who made the heaven and the earth?"}],"temperature":0}`)
	answer, err := http.Post(strings.TrimSpace(server.stdoutText())+"/chat/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	const want = `"content":"In the beginning God created the heaven and the earth."`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the answer is %s, %v, want %s", text, err, want)
	}
}
