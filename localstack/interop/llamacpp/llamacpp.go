// Package llamacpp compares the tiny engine with llama.cpp on the same
// weights: the same token ids, the same greedy tokens, and which is faster.
//
// llama.cpp runs in a process of its own (peer, a module of its own), which
// install.sh builds and whose libraries it fetches; the product needs neither.
// Where they are not installed, tests are skipped, and fail in CI.
package llamacpp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Folder is where install.sh puts things, below the repository's root.
const Folder = "out/llamacpp"

// ErrNotInstalled says what is missing and how to get it.
var ErrNotInstalled = errors.New("llama.cpp is not installed: `make llamacpp` fetches it")

// Process is llama.cpp with one model. It answers one question at a time.
type Process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	stderr  bytes.Buffer
}

// Options are how llama.cpp runs.
type Options struct {
	Root    string // the repository's root
	Threads int    // 1 if 0
	Fast    bool   // llama.cpp's defaults (keys and values as f16, flash attention), not plain sums in f32
}

// Start loads a GGUF file. It fails with ErrNotInstalled if llama.cpp is not
// there. The process ends with ctx, or by Close.
func Start(ctx context.Context, file string, o Options) (*Process, error) {
	folder, err := filepath.Abs(filepath.Join(o.Root, Folder))
	if err != nil {
		return nil, err
	}
	program := filepath.Join(folder, "peer")
	if _, err := os.Stat(program); err != nil {
		return nil, ErrNotInstalled
	}
	p := &Process{cmd: exec.CommandContext(ctx, program, "-lib", filepath.Join(folder, "lib"), "-model", file,
		"-threads", fmt.Sprint(max(1, o.Threads)), fmt.Sprintf("-fast=%t", o.Fast))}
	p.cmd.Stderr = &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.answers = json.NewDecoder(bufio.NewReaderSize(out, 1<<16))
	return p, p.cmd.Start()
}

// Close ends the process.
func (p *Process) Close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("llama.cpp: %w: %s", err, p.stderr.Bytes())
	}
	return nil
}

func (p *Process) ask(question, answer any) error {
	err := json.NewEncoder(p.in).Encode(question)
	if err == nil {
		err = p.answers.Decode(answer)
	}
	if err != nil { // it says why when it ends
		_ = p.in.Close()
		return errors.Join(fmt.Errorf("llama.cpp: %w", err), p.cmd.Wait(), errors.New(p.stderr.String()))
	}
	return nil
}

// Tokenize returns the text's ids, special tokens neither added nor parsed.
func (p *Process) Tokenize(text string) ([]int32, error) {
	var a struct {
		Tokens []int32 `json:"tokens"`
	}
	err := p.ask(map[string]any{"tokenize": text}, &a)
	return a.Tokens, err
}

// Greedy returns the n tokens after the prompt that are the likeliest, the
// lowest id of equals, and the least lead that one of them had over the next.
func (p *Process) Greedy(prompt []int32, n int) (tokens []int32, lead float32, err error) {
	var a struct {
		Tokens []int32 `json:"tokens"`
		Margin float32 `json:"margin"`
	}
	err = p.ask(map[string]any{"greedy": map[string]any{"prompt": prompt, "tokens": n}}, &a)
	return a.Tokens, a.Margin, err
}

// Logits returns those after the last token, one a token of the vocabulary.
func (p *Process) Logits(tokens []int32) ([]float32, error) {
	var a struct {
		Logits []float32 `json:"logits"`
	}
	err := p.ask(map[string]any{"logits": tokens}, &a)
	return a.Logits, err
}

// Throughput is what it took to sample.
type Throughput struct {
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakMiB    float64 `json:"peak_mib"`
}

// MeasureThroughput has so many streams append n tokens each to the prompt, side by side.
// The prompt is not timed.
func (p *Process) MeasureThroughput(prompt []int32, n, streams int) (Throughput, error) {
	var a Throughput
	err := p.ask(map[string]any{"pace": map[string]any{"prompt": prompt, "tokens": n, "streams": streams}}, &a)
	return a, err
}
