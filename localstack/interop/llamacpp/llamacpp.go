// Package llamacpp compares the tiny engine with llama.cpp on the same weights: token
// ids, greedy tokens, logits and speed. Start loads a GGUF file into llama.cpp; the
// methods of Process send it requests.
//
// llama.cpp runs in a separate process, the program peer, which is a separate module.
// install.sh downloads the libraries and builds the program. The product needs
// neither. Without them the tests are skipped; in CI they fail.
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

// Folder is the folder that install.sh installs to, relative to the repository's
// root.
const Folder = "out/llamacpp"

// ErrNotInstalled is the error of Start without an installed llama.cpp.
var ErrNotInstalled = errors.New("llama.cpp is not installed: run `make llamacpp`")

// Process is a process of llama.cpp with one model. It answers one request at a time.
type Process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	stderr  bytes.Buffer
}

// Options configure llama.cpp.
type Options struct {
	Root    string // the repository's root
	Threads int    // default: 1
	// Fast uses llama.cpp's defaults: keys and values in f16, and flash attention.
	// Otherwise llama.cpp computes in f32 without flash attention.
	Fast bool
}

// Start starts a process and loads a GGUF file. It returns ErrNotInstalled if
// llama.cpp is not installed. The process ends when ctx is canceled or Close is
// called.
func Start(ctx context.Context, file string, o Options) (*Process, error) {
	folder, err := filepath.Abs(filepath.Join(o.Root, Folder))
	if err != nil {
		return nil, err
	}
	program := filepath.Join(folder, "peer")
	if _, err := os.Stat(program); err != nil {
		return nil, ErrNotInstalled
	}
	cmd := exec.CommandContext(ctx, program, "-lib", filepath.Join(folder, "lib"), "-model", file,
		"-threads", fmt.Sprint(max(1, o.Threads)), fmt.Sprintf("-fast=%t", o.Fast))
	p := &Process{cmd: cmd}
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

// Close ends the process. It returns an error if the process failed.
func (p *Process) Close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("llama.cpp: %w: %s", err, p.stderr.Bytes())
	}
	return nil
}

// ask sends a request and decodes the answer.
func (p *Process) ask(request, answer any) error {
	err := json.NewEncoder(p.in).Encode(request)
	if err == nil {
		err = p.answers.Decode(answer)
	}
	if err != nil { // the process writes its own error to stderr and ends
		_ = p.in.Close()
		return errors.Join(fmt.Errorf("llama.cpp: %w", err), p.cmd.Wait(), errors.New(p.stderr.String()))
	}
	return nil
}

// Tokenize returns the ids of a text. It neither adds nor parses special tokens.
func (p *Process) Tokenize(text string) ([]int32, error) {
	var a struct {
		Tokens []int32 `json:"tokens"`
	}
	err := p.ask(map[string]any{"tokenize": text}, &a)
	return a.Tokens, err
}

// Greedy returns n tokens after the prompt, each the likeliest one; of equally likely
// tokens, the lowest id. lead is the smallest difference between the logits of a
// chosen token and of the second likeliest.
func (p *Process) Greedy(prompt []int32, n int) (tokens []int32, lead float32, err error) {
	var a struct {
		Tokens []int32 `json:"tokens"`
		Margin float32 `json:"margin"`
	}
	err = p.ask(map[string]any{"greedy": map[string]any{"prompt": prompt, "tokens": n}}, &a)
	return a.Tokens, a.Margin, err
}

// Logits returns the logits after the last token.
func (p *Process) Logits(tokens []int32) ([]float32, error) {
	var a struct {
		Logits []float32 `json:"logits"`
	}
	err := p.ask(map[string]any{"logits": tokens}, &a)
	return a.Logits, err
}

// Throughput is the result of MeasureThroughput.
type Throughput struct {
	Seconds    float64 `json:"seconds"`     // elapsed time
	CPUSeconds float64 `json:"cpu_seconds"` // processor time of the process
	PeakMiB    float64 `json:"peak_mib"`    // peak memory of the process
}

// MeasureThroughput generates n tokens in each of streams parallel sequences that
// begin with the prompt. The times do not include the prompt.
func (p *Process) MeasureThroughput(prompt []int32, n, streams int) (Throughput, error) {
	var a Throughput
	err := p.ask(map[string]any{"pace": map[string]any{"prompt": prompt, "tokens": n, "streams": streams}}, &a)
	return a, err
}
