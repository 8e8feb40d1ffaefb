package sample_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/scripts/rollout/sample"
	"rollout/shared/config"
	"rollout/shared/core/estimate"
)

// draw draws from a file with the text, and returns the lines of the sample too.
func draw(t *testing.T, name, text string, o sample.Options) (sample.Sample, []string) {
	t.Helper()
	folder := t.TempDir()
	o.File, o.To = filepath.Join(folder, name), filepath.Join(folder, "sample.jsonl")
	if err := os.WriteFile(o.File, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if o.Config.Kind == "" {
		o.Config = config.DefaultRun()
	}
	s, err := sample.Draw(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(o.To)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "lines-*")); err != nil || len(left) > 0 {
		t.Errorf("the folder still has %v, %v", left, err)
	}
	return s, slices.Collect(strings.Lines(string(b)))
}

func prompts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%04d\",\"prompt\":\"%s\"}\n", i, strings.Repeat("x", i%7))
	}
	return b.String()
}

func TestASampleHasLinesOfTheFileInItsOrder(t *testing.T) {
	t.Parallel()
	text := prompts(500)
	s, lines := draw(t, "x.jsonl", text, sample.Options{Size: 40, Seed: 3})
	if len(lines) != 40 || len(s.Sizes) != 40 || s.Whole.Items != 500 || !slices.IsSorted(lines) {
		t.Fatalf("%d lines of %d, %d sizes", len(lines), s.Whole.Items, len(s.Sizes))
	}
	for i, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not a line of the file", line)
		}
		if want := float64(strings.Count(line, "x") + 2); s.Sizes[i] != want { // with its quotes
			t.Errorf("%q has the size %v", line, s.Sizes[i])
		}
	}
	_, again := draw(t, "x.jsonl", text, sample.Options{Size: 40, Seed: 3})
	_, other := draw(t, "x.jsonl", text, sample.Options{Size: 40, Seed: 4})
	if !slices.Equal(lines, again) || slices.Equal(lines, other) {
		t.Error("the seed does not decide the sample")
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(text)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	_, unpacked := draw(t, "x.jsonl.gz", packed.String(), sample.Options{Size: 40, Seed: 3})
	if !slices.Equal(lines, unpacked) {
		t.Error("a packed file has another sample")
	}
}

func TestTheHeadIsTheFirstLinesThatCanBeAsked(t *testing.T) {
	t.Parallel()
	text := "\n{\"prompt\":7}\n{\"id\":\"a\",\"prompt\":\"1\"}\r\n{\"id\":\"a\",\"prompt\":\"2\"}\n" + prompts(5)
	s, lines := draw(t, "x.jsonl", text, sample.Options{Size: 3, Head: true})
	want := "{\"id\":\"a\",\"prompt\":\"1\"}\n" + prompts(2)
	got := strings.Join(lines, "")
	if got != want || s.Whole.Items != 6 || s.Report.Bad != 2 || s.Report.Duplicates != 1 {
		t.Errorf("the head is %q of %+v", got, s)
	}
}

func TestRequestsThatAreAskedOnceCountOnce(t *testing.T) {
	t.Parallel()
	c := config.DefaultRun()
	zero := 0.0
	c.Dedupe.Enabled, c.Sampling.Temperature = true, &zero
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"prompt\":\"question %d\"}\n", i, i%10)
	}
	s, lines := draw(t, "x.jsonl", b.String(), sample.Options{Size: 100, Config: c})
	if s.Whole.Items != 10 || s.Repeats != 20 || len(lines) != 10 {
		t.Errorf("%+v, %d lines", s, len(lines))
	}
}

// TestIntervalsOfRealFilesContainTheTruth draws samples of 200 lines from files whose lengths have heavy tails, with
// 100 seeds, and lets each line's answer have a length of its own.
func TestIntervalsOfRealFilesContainTheTruth(t *testing.T) {
	t.Parallel()
	const items, seeds = 1500, 100
	contained := 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 5))
		var b strings.Builder
		tokens := map[string]float64{} // of prompt and answer, by the line
		whole := 0.0
		for i := range items {
			words := int(min(2000, math.Exp(3+r.NormFloat64())))
			line := fmt.Sprintf("{\"id\":\"%d\",\"prompt\":\"%s\"}\n", i, strings.Repeat("word ", words))
			tokens[line] = float64(words) + math.Floor(min(1024, math.Exp(4+1.2*r.NormFloat64())))
			whole += tokens[line]
			b.WriteString(line)
		}
		s, lines := draw(t, "x.jsonl", b.String(), sample.Options{Size: 200, Seed: seed})
		values := make([]float64, len(lines))
		for i, line := range lines {
			values[i] = tokens[line]
		}
		got, ok := estimate.Total(s.Whole, s.Sizes, values, seed)
		if !ok {
			t.Fatal("no estimate")
		}
		if got.Low <= whole && whole <= got.High {
			contained++
		}
	}
	if contained < 90 {
		t.Errorf("%d of %d intervals contain the truth", contained, seeds)
	}
}
