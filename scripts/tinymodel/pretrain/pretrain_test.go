package pretrain

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/corpus"
	"rollout/scripts/tinymodel/heldout"
	"rollout/shared/fault"
)

// documents returns a few chapters and a chat.
func documents(t testing.TB) []corpus.Document {
	t.Helper()
	all, err := heldout.Documents()
	if err != nil {
		t.Fatal(err)
	}
	chat := corpus.Document{ID: "chat", Messages: []corpus.Message{
		{Role: "user", Content: "Let there be"}, {Role: "assistant", Content: "light."},
	}}
	return append(all[:12:12], chat)
}

func trainedTokenizer(t testing.TB, documents []corpus.Document, vocab int) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Train(func(yield func(string) bool) {
		for _, d := range documents {
			if !yield(d.Text) {
				return
			}
		}
	}, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// smallRecipe returns the recipe of a model of 60,000 parameters that trains in
// seconds.
func smallRecipe() Recipe {
	return Recipe{
		Width: 64, Layers: 1, Heads: 1, HeadSize: 64, Hidden: 128, Context: 32,
		Steps: 30, Batch: 8, Seed: 5,
		Rate: 1e-2, Warmup: 5, Shape: "cosine", Beta1: 0.9, Beta2: 0.95, Decay: 0.1, Clip: 1,
	}
}

func start(t testing.TB, r Recipe, threads int) (*Trainer, *Stream, *tokenizer.Tokenizer) {
	t.Helper()
	docs := documents(t)
	tok := trainedTokenizer(t, docs, 300)
	s, err := NewStream(tok, docs, r.Seed)
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := New(r, tok, s, threads)
	if err != nil {
		t.Fatal(err)
	}
	return trainer, s, tok
}

func run(t testing.TB, trainer *Trainer, steps int) (losses []float64) {
	t.Helper()
	for range steps {
		loss, err := trainer.Step()
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	return losses
}

// goldenDigest is the digest of the small model's file after training, with its
// tokenizer and 8-bit weights. The same code makes the shipped model, which takes
// hours of processor time.
const goldenDigest = "988adf28f72bcdffcd57a3949dfefd97e590aa3e78eb8ca4e117f36d5d2c4332"

func TestTrainingHasTheGoldenDigest(t *testing.T) {
	t.Parallel()
	trainer, _, tok := start(t, smallRecipe(), 2)
	if n := trainer.Model().Config().Parameters(); n < 55_000 || n > 65_000 {
		t.Errorf("the model has %d parameters, want about 60,000", n)
	}
	losses := run(t, trainer, smallRecipe().Steps)
	if first, last := losses[0], losses[len(losses)-1]; first < 5 || last > 4.2 {
		t.Errorf("the loss went from %.2f to %.2f, want at most 4.2", first, last)
	}
	b, err := weights.Pack("rollout/test", trainer.Model(), tok, weights.I8)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := weights.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	if packed.Digest != goldenDigest {
		t.Errorf("the weights have the digest %s, want %s: the results of training changed, "+
			"so the shipped weights cannot be reproduced", packed.Digest, goldenDigest)
	}
}

func TestResumedTrainingEndsWithTheSameDigest(t *testing.T) {
	t.Parallel()
	r := smallRecipe()
	r.Steps = 8
	whole, _, _ := start(t, r, 1)
	run(t, whole, r.Steps)
	for stop := range r.Steps {
		dir := t.TempDir()
		part, s, tok := start(t, r, 2)
		run(t, part, stop)
		if err := part.Save(dir, "rollout/test"); err != nil {
			t.Fatal(err)
		}
		again, ok, err := Resume(dir, r, tok, s, 1+stop%2)
		if err != nil || !ok || again.StepsDone() != stop {
			t.Fatalf("resumed at step %d: %v, %v", stop, ok, err)
		}
		run(t, again, r.Steps-stop)
		if again.Digest() != whole.Digest() {
			t.Errorf("resumed after step %d, the digest is %s, want %s", stop, again.Digest(), whole.Digest())
		}
	}
}

func TestSaveKeepsTheLastTwoCheckpoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trainer, s, tok := start(t, smallRecipe(), 1)
	for range 4 {
		run(t, trainer, 1)
		if err := trainer.Save(dir, "rollout/test"); err != nil {
			t.Fatal(err)
		}
	}
	// Incomplete checkpoints and other folders must not count as checkpoints.
	for _, name := range []string{"step-000009.part", "step-x"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := checkpoints(dir)
	if want := []string{"step-000003", "step-000004"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the checkpoints are %v, %v; want %v", got, err, want)
	}
	again, ok, err := Resume(dir, smallRecipe(), tok, s, 1)
	if err != nil || !ok || again.StepsDone() != 4 {
		t.Errorf("resumed: %v, %v; want a trainer at step 4", ok, err)
	}
	run(t, again, 1)
	if err := again.Save(dir, "rollout/test"); err != nil {
		t.Fatal(err)
	}
	if left := incomplete(dir); len(left) > 0 {
		t.Errorf("Save left the incomplete checkpoints %v", left)
	}
	if _, ok, err := Resume(filepath.Join(dir, "none"), smallRecipe(), tok, s, 1); ok || err != nil {
		t.Errorf("resumed from a missing folder: %v, %v; want false", ok, err)
	}
}

func TestDamagedAndMismatchedCheckpointsAreRefused(t *testing.T) {
	t.Parallel()
	r := smallRecipe()
	trainer, s, tok := start(t, r, 1)
	run(t, trainer, 1)
	other := r
	other.Rate = 1
	docs := documents(t)
	fewer, err := NewStream(tok, docs[1:], r.Seed)
	if err != nil {
		t.Fatal(err)
	}
	truncate := func(file string) func(dir string) error {
		return func(dir string) error {
			name := filepath.Join(dir, "step-000001", file)
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return os.WriteFile(name, b[:len(b)-1], 0o644)
		}
	}
	for _, c := range []struct {
		name   string
		recipe Recipe
		stream *Stream
		tok    *tokenizer.Tokenizer
		damage func(dir string) error
		kind   fault.Kind
		want   string
	}{
		{"other recipe", other, s, tok, nil, fault.Invalid, "another recipe"},
		{"other documents", r, fewer, tok, nil, fault.Invalid, "another corpus"},
		{"other tokenizer", r, s, trainedTokenizer(t, docs, 310), nil, fault.Invalid, "another tokenizer"},
		{"truncated model", r, s, tok, truncate(modelFile), fault.Corrupt, "step-000001"},
		{"truncated moments", r, s, tok, truncate(momentFiles[1]), fault.Corrupt, "second.safetensors"},
		{"missing moments", r, s, tok, func(dir string) error {
			return os.Remove(filepath.Join(dir, "step-000001", momentFiles[0]))
		}, fault.Corrupt, "first.safetensors"},
		{"model of another checkpoint", r, s, tok, func(dir string) error {
			b, err := weights.Pack("rollout/other", trainer.Model(), tok, weights.F32)
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "step-000001", modelFile), b, 0o644)
		}, fault.Corrupt, "the moments belong to model"},
	} {
		dir := t.TempDir()
		if err := trainer.Save(dir, "rollout/test"); err != nil {
			t.Fatal(err)
		}
		if c.damage != nil {
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := Resume(dir, c.recipe, c.tok, c.stream, 1)
		if fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v (%s), want %q (%s)", c.name, err, fault.KindOf(err), c.want, c.kind)
		}
	}
}

func TestEpochHasEachSequenceOnce(t *testing.T) {
	t.Parallel()
	_, s, _ := start(t, smallRecipe(), 1)
	const length, size = 32, 7
	n := s.windows(length)
	for epoch := range 3 {
		seen := map[*int32]bool{}
		for i := epoch * n; i < (epoch+1)*n; i++ {
			q := s.Batch(i/size, size, length)[i%size]
			seen[&q.Tokens[0]] = true
			if !slices.Equal(q.Tokens[1:], q.Targets[:length-1]) || len(q.Targets) != length {
				t.Fatalf("sequence %d: the targets are not the next tokens", i)
			}
		}
		if len(seen) != n {
			t.Errorf("epoch %d has %d different sequences of %d", epoch, len(seen), n)
		}
	}
	if a, b := s.order(0, n), s.order(1, n); slices.Equal(a, b) || slices.IsSorted(a) {
		t.Error("two epochs have the same order, or an epoch is not shuffled")
	}
}

func TestStreamEndsDocumentsWithEndOfTextAndIgnoresTheirOrder(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	tok := trainedTokenizer(t, docs, 300)
	a, err := NewStream(tok, docs, 1)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(docs)
	b, err := NewStream(tok, docs, 1)
	if err != nil || a.Digest() != b.Digest() {
		t.Errorf("in reverse order, the digest is %s, want %s (%v)", b.Digest(), a.Digest(), err)
	}
	ends := 0
	for _, id := range a.tokens {
		if id == tok.EndOfText() {
			ends++
		}
	}
	if ends != len(docs) || a.tokens[a.Len()-1] != tok.EndOfText() {
		t.Errorf("%d documents have %d ends of text", len(docs), ends)
	}
	bad := []corpus.Document{{ID: "x", Messages: []corpus.Message{{Role: "judge", Content: "a"}}}}
	if _, err := NewStream(tok, bad, 1); err == nil || !strings.Contains(err.Error(), "document x") {
		t.Errorf("unknown role: %v, want an error that names the document", err)
	}
}

func TestImpossibleRecipesAreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Recipe){
		"steps is 0":               func(r *Recipe) { r.Steps = 0 },
		"batch is 0":               func(r *Recipe) { r.Batch = 0 },
		"clip is -1":               func(r *Recipe) { r.Clip = -1 },
		"circle":                   func(r *Recipe) { r.Shape = "circle" },
		"betas":                    func(r *Recipe) { r.Beta1 = 2 },
		"layers is 0":              func(r *Recipe) { r.Layers = 0 },
		"fewer than two sequences": func(r *Recipe) { r.Context = 60000 },
	} {
		r := smallRecipe()
		change(&r)
		docs := documents(t)
		tok := trainedTokenizer(t, docs, 300)
		s, err := NewStream(tok, docs, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(r, tok, s, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			r := smallRecipe()
			trainer, _, _ := start(b, r, threads)
			for b.Loop() {
				run(b, trainer, 1)
			}
			b.ReportMetric(float64(b.N*r.Batch*r.Context)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
