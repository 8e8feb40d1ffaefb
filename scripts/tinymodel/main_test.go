package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rollout/scripts/tinymodel/corpus"
	"rollout/scripts/tinymodel/heldout"
)

// do runs a command and returns what it printed.
func do(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	c := root()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// workshop is a folder with a few documents and a tokenizer, and the flags of a
// small and short training there.
func workshop(t *testing.T) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	documents, err := heldout.Documents()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := corpus.Write(&b, documents[:8]); err != nil {
		t.Fatal(err)
	}
	learn, tok := filepath.Join(dir, learnFile), filepath.Join(dir, tokenizerFile)
	if err := os.WriteFile(learn, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := do(t.Context(), "tokenizer", "--corpus", learn, "--vocab", "280", "--out", tok); err != nil || !strings.Contains(out, "280 tokens") {
		t.Fatalf("tokenizer: %q, %v", out, err)
	}
	return dir, []string{"--corpus", learn, "--tokenizer", tok, "--out", filepath.Join(dir, "run"),
		"--width", "16", "--layers", "1", "--heads", "1", "--head-size", "16", "--hidden", "16", "--context", "16",
		"--steps", "6", "--warmup", "2", "--batch", "2", "--log-every", "2", "--digest-every", "3", "--save-every", "4"}
}

func TestAModelIsTrainedJudgedAndPacked(t *testing.T) {
	t.Parallel()
	dir, flags := workshop(t)
	out, err := do(t.Context(), append([]string{"pretrain"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"step 2 of 6  loss 5.", "step 3: digest ", "step 6 of 6", "step 6: digest ", "model.safetensors: digest "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	result := filepath.Join(dir, "run", modelFile)
	judged, err := do(t.Context(), "evaluate", "--model", result, "--documents", filepath.Join(dir, learnFile))
	if err != nil || !regexp.MustCompile(`^\d\.\d{4} bits per byte \(8 documents, \d+ bytes, \d+ tokens\)\n$`).MatchString(judged) {
		t.Errorf("evaluate: %q, %v", judged, err)
	}
	packed := filepath.Join(dir, "tiny.safetensors")
	if out, err := do(t.Context(), "pack", "--model", result, "--out", packed); err != nil || !strings.Contains(out, "parameters as I8") {
		t.Errorf("pack: %q, %v", out, err)
	}
	if _, err := readModel(packed); err != nil {
		t.Error(err)
	}
}

func TestAStoppedTrainingIsResumedWithTheSameResult(t *testing.T) {
	t.Parallel()
	_, flags := workshop(t)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	pretrain := append([]string{"pretrain"}, flags...)
	if _, err := do(stopped, pretrain...); err == nil || !strings.Contains(err.Error(), "go on with --resume") {
		t.Fatalf("stopped: %v", err)
	}
	if _, err := do(t.Context(), pretrain...); err == nil || !strings.Contains(err.Error(), "add --resume") {
		t.Errorf("begun again over checkpoints: %v", err)
	}
	resumed, err := do(t.Context(), append(pretrain, "--resume")...)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := do(t.Context(), append(pretrain, "--out", t.TempDir())...)
	if err != nil {
		t.Fatal(err)
	}
	digest := regexp.MustCompile(`step 6: digest \w{64}`)
	if a, b := digest.FindString(resumed), digest.FindString(whole); a == "" || a != b {
		t.Errorf("resumed, it ended with %q, in one go with %q", a, b)
	}
	if out, err := do(t.Context(), append(pretrain, "--steps", "7", "--resume")...); err == nil || !strings.Contains(err.Error(), "of the recipe") {
		t.Errorf("resumed with another recipe: %q, %v", out, err)
	}
}

func TestMissingFilesAreNamedWithWhatMakesThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"corpus", "--bible", none, "--opticks", none}, "install bible-kjv-text"},
		{[]string{"corpus", "--bible", os.Args[0], "--opticks", none}, "not the data file"},
		{[]string{"corpus"}, `"opticks" not set`},
		{[]string{"tokenizer", "--corpus", none}, "make model-corpus"},
		{[]string{"pretrain", "--tokenizer", none}, "`tinymodel tokenizer` makes it"},
		{[]string{"speed", "--seconds", "0"}, "--seconds"},
		{[]string{"evaluate", "--model", none}, "read the model"},
		{[]string{"pack", "--model", os.Args[0]}, "no safetensors file"},
	} {
		if _, err := do(t.Context(), c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
