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

// runCommand runs a command and returns its standard output.
func runCommand(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	c := root()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// smallTraining returns a folder with a few documents and a tokenizer, and the
// flags of a small and short training with them.
func smallTraining(t *testing.T) (dir string, flags []string) {
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
	out, err := runCommand(t.Context(), "tokenizer", "--corpus", learn, "--vocab", "280", "--out", tok)
	if err != nil || !strings.Contains(out, "280 tokens") {
		t.Fatalf("tokenizer: %q, %v", out, err)
	}
	return dir, []string{"--corpus", learn, "--tokenizer", tok, "--out", filepath.Join(dir, "run"),
		"--width", "16", "--layers", "1", "--heads", "1", "--head-size", "16", "--hidden", "16", "--context", "16",
		"--steps", "6", "--warmup", "2", "--batch", "2", "--log-every", "2", "--digest-every", "3", "--save-every", "4"}
}

func TestModelIsTrainedEvaluatedAndPacked(t *testing.T) {
	t.Parallel()
	dir, flags := smallTraining(t)
	out, err := runCommand(t.Context(), append([]string{"pretrain"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"step 2 of 6  loss 5.", "step 3: digest ", "step 6 of 6", "step 6: digest ", "model.safetensors: digest ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
	result := filepath.Join(dir, "run", modelFile)
	out, err = runCommand(t.Context(), "evaluate", "--model", result, "--documents", filepath.Join(dir, learnFile))
	line := regexp.MustCompile(`^\d\.\d{4} bits per byte \(8 documents, \d+ bytes, \d+ tokens\)\n$`)
	if err != nil || !line.MatchString(out) {
		t.Errorf("evaluate: %q, %v", out, err)
	}
	packed := filepath.Join(dir, "tiny.safetensors")
	out, err = runCommand(t.Context(), "pack", "--model", result, "--out", packed)
	if err != nil || !strings.Contains(out, "parameters as I8") {
		t.Errorf("pack: %q, %v", out, err)
	}
	if _, err := readModel(packed); err != nil {
		t.Error(err)
	}
}

func TestStoppedTrainingResumesWithTheSameResult(t *testing.T) {
	t.Parallel()
	_, flags := smallTraining(t)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	pretrain := append([]string{"pretrain"}, flags...)
	if _, err := runCommand(stopped, pretrain...); err == nil || !strings.Contains(err.Error(), "continue with --resume") {
		t.Fatalf("stopped: %v", err)
	}
	if _, err := runCommand(t.Context(), pretrain...); err == nil || !strings.Contains(err.Error(), "add --resume") {
		t.Errorf("started in a folder with checkpoints: %v", err)
	}
	resumed, err := runCommand(t.Context(), append(pretrain, "--resume")...)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := runCommand(t.Context(), append(pretrain, "--out", t.TempDir())...)
	if err != nil {
		t.Fatal(err)
	}
	digest := regexp.MustCompile(`step 6: digest \w{64}`)
	if a, b := digest.FindString(resumed), digest.FindString(whole); a == "" || a != b {
		t.Errorf("the resumed training ended with %q, want %q", a, b)
	}
	out, err := runCommand(t.Context(), append(pretrain, "--steps", "7", "--resume")...)
	if err == nil || !strings.Contains(err.Error(), "has another recipe") {
		t.Errorf("resumed with another recipe: %q, %v", out, err)
	}
}

func TestErrorsOfMissingFilesHaveARemedy(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
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
		{[]string{"pack", "--model", os.Args[0]}, "not in safetensors format"},
	} {
		if _, err := runCommand(t.Context(), c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}
