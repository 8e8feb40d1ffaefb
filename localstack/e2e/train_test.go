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

// trainingFixture is a folder with a small base model and a dataset of each kind.
type trainingFixture struct {
	t    *testing.T
	dir  string
	base string // a base model's uri
}

// newTrainingFixture keeps an untrained model of a few thousand parameters as a
// snapshot, so that a step takes a millisecond.
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
	m, err := decoder.New(decoder.Config{Vocab: tok.Vocab(), Width: 16, Layers: 1, Heads: 1, HeadSize: 16, Hidden: 32, Context: 64, RopeBase: 10000, NormEpsilon: 1e-5}, 1)
	if err != nil {
		t.Fatal(err)
	}
	file, rows := s.dataset("sft.jsonl")
	defer file()
	fresh := config.DefaultSFT()
	fresh.BaseModel.URI, fresh.Optimizer.LR, fresh.Budget.MaxSteps = config.ModelTiny, 1, 1
	tr, err := training.New(training.Options{Algorithm: config.Algorithm{Kind: config.AlgorithmSFT, SFT: fresh}, Dataset: rows, Threads: 1,
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

// course writes a config of the kind, whose output goes to a folder of its own.
func (s trainingFixture) course(kind, output string, steps, every int) string {
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

// last is the object that `rollout train --json` ends with.
func last(t *testing.T, p *process) (r train.Result) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(p.stdoutText()), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("the last line is no result: %v", err)
	}
	return r
}

func TestATrainingKilledTenTimesEndsWithTheSameDigest(t *testing.T) {
	t.Parallel()
	const steps, every, kills = 600, 10, 10
	for _, kind := range []string{config.AlgorithmSFT, config.AlgorithmRM} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newTrainingFixture(t)
			undisturbed := launch(t, rollout, "train", kind, "--config", s.course(kind, "undisturbed", steps, every), "--json")
			undisturbed.wantExit(0)
			want := last(t, undisturbed)
			if !want.Done || want.Step != steps {
				t.Fatalf("it ended with %+v", want)
			}
			dice := rand.New(rand.NewPCG(1, 2)) // which moments it hits is up to the machine all the same
			course := s.course(kind, "disturbed", steps, every)
			for killed := range kills {
				p := launch(t, rollout, "train", kind, "--config", course, "--json", "--resume", "latest")
				steps := dice.IntN(3 * every)
				eventually(t, "some steps are taken", func() bool { return strings.Count(p.stdoutText(), "\n") > steps })
				<-time.After(time.Duration(dice.IntN(30)) * time.Millisecond)
				p.kill()
				if p.cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("it was over before it was killed for the %d. time", killed+1)
				}
			}
			p := launch(t, rollout, "train", kind, "--config", course, "--json", "--resume", "latest")
			p.wantExit(0)
			if got := last(t, p); got.Snapshot != want.Snapshot {
				t.Errorf("the snapshot is %s, undisturbed it is %s", got.Snapshot, want.Snapshot)
			}
			if !strings.Contains(p.stderrText(), "going on from snapshot") {
				t.Error("it did not go on from a snapshot")
			}
		})
	}
}

func TestASignalKeepsTheStateAtTheBorderOfAStep(t *testing.T) {
	t.Parallel()
	s := newTrainingFixture(t)
	whole := launch(t, rollout, "train", "sft", "--config", s.course("sft", "whole", 2000, 0), "--json")
	whole.wantExit(0)
	course := s.course("sft", "stopped", 2000, 0)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := launch(t, rollout, "train", "sft", "--config", course, "--json", "--resume", "latest", "--threads", "2")
		eventually(t, "a step is taken", func() bool { return p.stdoutText() != "" })
		p.signal(signal)
		p.wantExit(1)
		r := last(t, p)
		if want := fmt.Sprintf("interrupted at step %d of 2000; snapshot %s is kept (start the same command with --resume latest to go on)", r.Step, r.Snapshot); r.Done || !strings.Contains(p.stderrText(), want) {
			t.Errorf("after %s: %+v; want %s", signal, r, want)
		}
	}
	p := launch(t, rollout, "train", "sft", "--config", course, "--json", "--resume", "latest")
	p.wantExit(0)
	if got, want := last(t, p).Snapshot, last(t, whole).Snapshot; got != want {
		t.Errorf("the snapshot is %s, without a break it is %s", got, want)
	}
}

// dataset opens a dataset of examples.
func (s trainingFixture) dataset(name string) (func(), *dataset.Index) {
	s.t.Helper()
	file, err := dataset.OpenFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	rows, err := training.OpenDataset(s.t.Context(), config.AlgorithmSFT, file)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() { _ = file.Close() }, rows
}

// The example, as it stands, teaches the model that comes with rollout.
func TestAFineTunedModelAnswersAsItWasTaught(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join("..", "..", "examples"))); err != nil {
		t.Fatal(err)
	}
	taught := launchIn(t, dir, rollout, "train", "sft", "--config", "examples/sft-tiny.toml", "--json")
	taught.wantExit(0)
	state := filepath.Join(dir, "out", "sft-tiny", ".rollout")
	server := launch(t, rollout, "serve", "--snapshot", last(t, taught).Snapshot, "--dir", state, "--addr", "127.0.0.1:0")
	eventually(t, "the server tells its address", func() bool { return strings.HasSuffix(server.stdoutText(), "/v1\n") })
	body := strings.NewReader(`{"messages":[{"role":"user","content":"Who made the heaven and the earth?"}],"temperature":0}`)
	answer, err := http.Post(strings.TrimSpace(server.stdoutText())+"/chat/completions", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if want := `"content":"In the beginning God created the heaven and the earth."`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("it answers %s, %v, want %s", text, err, want)
	}
}
