package training

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/training/dataset"
	"rollout/shared/config"
	"rollout/shared/fault"
)

var shape = model.Config{
	Vocab: 260, Width: 16, Layers: 2, Heads: 2, HeadSize: 8, Hidden: 24, Context: 48, RopeBase: 10000, NormEpsilon: 1e-5,
}

const (
	examples = `{"prompt":"the cat ","completion":"sat on the mat"}
{"messages":[{"role":"user","content":"two and two?"},{"role":"assistant","content":"four"}]}
{"prompt":"","completion":"in the beginning"}

{"prompt":"a row that is far longer than the forty-eight tokens which the model has room for: ","completion":"cut"}
{"prompt":"the dog ","completion":"lay on the rug"}
`
	pairs = `{"prompt":"2+2? ","chosen":"4","rejected":"5"}
{"prompt":"capital of France? ","chosen":"Paris","rejected":"London"}
{"prompt":"","chosen":"yes","rejected":"no"}
{"prompt":"a prompt that is far longer than the model has room for, so that it is cut: ","chosen":"ok","rejected":"bad"}
`
)

// trainingFixture is the description of a training.
type trainingFixture struct {
	algorithm config.Algorithm
	rows      string
	threads   int
	scalar    bool
}

func sft(change ...func(*config.SFT)) trainingFixture {
	s := config.DefaultSFT()
	s.BaseModel.URI, s.Minibatch, s.Dataset.Path, s.Budget.MaxSteps, s.Seed = config.ModelTiny, 3, "rows.jsonl", 10, 1
	s.Optimizer.LR, s.Optimizer.WarmupSteps = 0.01, 2
	s.Optimizer.Schedule, s.Optimizer.WeightDecay = config.ScheduleCosine, 0.1
	for _, f := range change {
		f(s)
	}
	return trainingFixture{config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}, examples, 1, false}
}

func rm(change ...func(*config.RM)) trainingFixture {
	r := config.DefaultRM()
	r.BaseModel.URI, r.Minibatch, r.Accumulation = config.ModelTiny, 2, 2
	r.Dataset.Path, r.Budget.MaxSteps, r.Optimizer.LR = "rows.jsonl", 10, 0.01
	for _, f := range change {
		f(r)
	}
	return trainingFixture{config.Algorithm{Kind: config.AlgorithmRM, RM: r}, pairs, 1, false}
}

func (l trainingFixture) on(threads int, scalar bool) trainingFixture {
	l.threads, l.scalar = threads, scalar
	return l
}

// trainer returns a trainer with an untrained model.
func (l trainingFixture) trainer(t testing.TB) *Trainer {
	t.Helper()
	tr, err := l.try(t)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func (l trainingFixture) try(t testing.TB) (*Trainer, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(l.rows), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := dataset.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	rows, err := OpenDataset(t.Context(), l.algorithm.Kind, file)
	if err != nil {
		return nil, err
	}
	m, err := model.New(shape, 7)
	if err != nil {
		t.Fatal(err)
	}
	base := Base{URI: config.ModelTiny, Model: m, Tokenizer: bytesOnly(t)}
	return New(Options{Algorithm: l.algorithm, Base: base, Dataset: rows, Threads: l.threads, Scalar: l.scalar})
}

// steps takes n steps and returns their losses.
func steps(t testing.TB, tr *Trainer, n int) (losses []float64) {
	t.Helper()
	for range n {
		r, err := tr.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, r.Loss)
	}
	return losses
}

// save writes the trainer's state into a new folder and returns the folder.
func save(t testing.TB, tr *Trainer) string {
	t.Helper()
	folder := t.TempDir()
	if err := tr.Save(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// digest returns the digest of all files in a folder.
func digest(t testing.TB, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	h := blake3.New(32, nil)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %d\n", e.Name(), len(b))
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

var trainings = map[string]trainingFixture{
	"sft adamw": sft(),
	"sft sgd": sft(func(s *config.SFT) {
		s.Optimizer.Kind, s.Optimizer.LR, s.LossOn.Kind, s.Accumulation = config.OptimizerSGD, 0.1, config.LossFull, 2
	}),
	"sft packed": sft(func(s *config.SFT) { s.Packing.Kind = config.PackingOn }),
	"rm adamw":   rm(),
	"rm sgd":     rm(func(r *config.RM) { r.Optimizer.Kind, r.Optimizer.LR = config.OptimizerSGD, 0.5 }),
}

// golden are the digests of all parameters, moments and losses after ten steps,
// which are the same on every machine. If a change of the arithmetic changes them,
// raise schema, because training resumed from an older state would end with other
// bytes.
var golden = map[string]string{
	"sft adamw":  "83de04f4f8e8d73d9a2840652fbeaaf171b8250a858c0b980ba4bd6499f4626b",
	"sft sgd":    "7ff36e51e1189f4078fc236ba5d3d9d59aa0a1d2cfb99d4817c989137060409b",
	"sft packed": "83de04f4f8e8d73d9a2840652fbeaaf171b8250a858c0b980ba4bd6499f4626b",
	"rm adamw":   "85b531bc13a1322d7796d9a1551c89e785967d31a59f223f343353d26fc4da3b",
	"rm sgd":     "e22e96c346aa008f5b557ebe3b18d04b8ffa2b982f27d11d109d7eda93027750",
}

// arraysDigest returns the digest of the trainer's arrays and losses.
func arraysDigest(t testing.TB, tr *Trainer) string {
	t.Helper()
	h := blake3.New(32, nil)
	for _, p := range tr.optimizer.parts {
		for _, x := range [][]float32{p.parameters, p.first, p.second} {
			if err := binary.Write(h, binary.LittleEndian, x); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := binary.Write(h, binary.LittleEndian, tr.curve.Points); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestTrainingsHaveTheGoldenDigests(t *testing.T) {
	t.Parallel()
	for kernels, scalar := range map[string]bool{"best": false, "scalar": true} {
		t.Run(kernels, func(t *testing.T) {
			t.Parallel()
			for _, threads := range []int{1, 2} {
				t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
					t.Parallel()
					for name, l := range trainings {
						tr := l.on(threads, scalar).trainer(t)
						steps(t, tr, 10)
						if got := arraysDigest(t, tr); got != golden[name] {
							t.Errorf("%q has the digest %q, want %q", name, got, golden[name])
						}
					}
				})
			}
		})
	}
}

func TestStateDoesNotDependOnThreadsOrVectors(t *testing.T) {
	t.Parallel()
	for name, l := range trainings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := ""
			for _, l := range []trainingFixture{
				l.on(1, false), l.on(1, false), l.on(2, false), l.on(16, false), l.on(2, true),
			} {
				tr := l.trainer(t)
				steps(t, tr, 10)
				got := digest(t, save(t, tr))
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%d threads, scalar %v: %s, want %s", l.threads, l.scalar, got, want)
				}
			}
		})
	}
}

func TestTrainingResumedAtAnyStepEndsWithTheSameBytes(t *testing.T) {
	t.Parallel()
	for name, l := range trainings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := l.trainer(t)
			var folders []string
			for range 10 {
				folders = append(folders, save(t, whole))
				steps(t, whole, 1)
			}
			want := digest(t, save(t, whole))
			for k, folder := range folders {
				tr := l.on(1+k%2, k%3 == 2).trainer(t)
				if err := tr.Restore(folder); err != nil {
					t.Fatalf("at step %d: %v", k, err)
				}
				if got := digest(t, save(t, tr)); got != digest(t, folder) {
					t.Errorf("at step %d: the restored state is saved as other bytes", k)
				}
				steps(t, tr, 10-k)
				if got := digest(t, save(t, tr)); got != want {
					t.Errorf("from step %d: %s, want %s", k, got, want)
				}
			}
		})
	}
}

func TestPackingChangesNoLossAndNoParameter(t *testing.T) {
	t.Parallel()
	separate, packed := trainings["sft adamw"].trainer(t), trainings["sft packed"].trainer(t)
	if a, b := steps(t, separate, 10), steps(t, packed, 10); !slices.Equal(a, b) {
		t.Errorf("losses are %v without packing, %v with", a, b)
	}
	if !slices.Equal(separate.model.Flat(), packed.model.Flat()) {
		t.Error("the parameters differ with packing")
	}
}

func TestAccumulationApproximatesALargerMinibatch(t *testing.T) {
	t.Parallel()
	losses := func(minibatch, accumulation int) []float64 {
		l := sft(func(s *config.SFT) { s.Minibatch, s.Accumulation = minibatch, accumulation })
		return steps(t, l.trainer(t), 10)
	}
	a, b := losses(4, 1), losses(1, 4)
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-3*a[i] {
			t.Errorf("step %d: loss %v with one minibatch of 4, %v with four of 1", i+1, a[i], b[i])
		}
	}
}

func TestFineTuningLearnsItsRows(t *testing.T) {
	t.Parallel()
	l := sft(func(s *config.SFT) { s.Budget.MaxSteps, s.Minibatch = 60, 5 })
	tr := l.trainer(t)
	losses := steps(t, tr, 60)
	if first, last := losses[0], losses[59]; first < 5 || last > 2 {
		t.Errorf("the loss went from %v to %v, want at most 2", first, last)
	}
	if c := tr.Curve(); c.Steps != 60 || c.Points[59] != losses[59] {
		t.Errorf("the curve has %d steps, want 60 that end with %v", c.Steps, losses[59])
	}
}

func TestRewardModelLearnsToPreferChosenAnswers(t *testing.T) {
	t.Parallel()
	tr := rm(func(r *config.RM) { r.Budget.MaxSteps = 40 }).trainer(t)
	before, err := tr.Evaluate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if *before.Accuracy != 0 || math.Abs(before.Loss-math.Ln2) > 1e-6 {
		t.Errorf("untrained head: accuracy %v, loss %v; want 0 and ln 2", *before.Accuracy, before.Loss)
	}
	steps(t, tr, 40)
	after, err := tr.Evaluate(t.Context())
	if err != nil || *after.Accuracy != 1 || after.Loss > 0.2 || after.Rows != 4 {
		t.Errorf("after training: %+v, %v; want accuracy 1 and a loss of at most 0.2", after, err)
	}
}

func TestCanceledStepCanBeTakenAgain(t *testing.T) {
	t.Parallel()
	whole, tr := rm().trainer(t), rm().trainer(t)
	steps(t, whole, 2)
	steps(t, tr, 1)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tr.Step(canceled); !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v, want a Canceled fault", err)
	}
	steps(t, tr, 1)
	if digest(t, save(t, tr)) != digest(t, save(t, whole)) {
		t.Error("the state differs from that of an uncanceled training")
	}
}

func TestDivergedTrainingReturnsConflictWithARemedy(t *testing.T) {
	t.Parallel()
	tr := sft(func(s *config.SFT) {
		s.Optimizer.Kind, s.Optimizer.LR, s.Optimizer.WeightDecay = config.OptimizerSGD, 1000, 1
		s.Optimizer.MaxGradNorm, s.Optimizer.WarmupSteps, s.Budget.MaxSteps = 0, 0, 100
	}).trainer(t)
	for range 100 {
		_, err := tr.Step(t.Context())
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "the training diverged at step") ||
			!strings.Contains(err.Error(), "lower optimizer.lr") || !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v, want a Conflict fault with a remedy", err)
		}
		return
	}
	t.Error("the training did not diverge")
}

func TestRunSavesAtTheIntervalAtTheEndAndWhenStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		every, stopAt int
		want          string
	}{
		{3, 0, "[3 6 9 10] true"},
		{0, 0, "[10] true"},
		{5, 0, "[5 10] true"},
		{4, 6, "[4 6] false"},
		{4, 4, "[4] false"},
	} {
		tr := rm().trainer(t)
		stop := make(chan struct{})
		var saved []int
		done, err := tr.Run(t.Context(), c.every, Hooks{
			Progress: func(r Report) {
				if r.Step == c.stopAt {
					close(stop)
				}
			},
			Save: func(_ context.Context, tr *Trainer) error {
				taken, _ := tr.Steps()
				saved = append(saved, taken)
				return nil
			},
			Stop: stop,
		})
		if got := fmt.Sprint(saved, done); err != nil || got != c.want {
			t.Errorf("every %d, stopped at %d: saved %s, %v, want %s", c.every, c.stopAt, got, err, c.want)
		}
	}
}

func TestSettingsThatDoNotFitModelOrRowsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		l    trainingFixture
		want string
	}{
		{sft(func(s *config.SFT) { s.Packing.MaxSeqLen = 49 }), "max_seq_len is 49, the model's context is 48 (lower it"},
		{rm(func(r *config.RM) { r.MaxSeqLen = 3 }), "max_seq_len is 3: rows need at least 4 tokens"},
		{trainingFixture{algorithm: sft().algorithm, rows: pairs}, `rows.jsonl:1: "completion" is missing`},
		{trainingFixture{algorithm: rm().algorithm, rows: examples}, `rows.jsonl:1: "chosen" is missing`},
	} {
		if _, err := c.l.try(t); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
