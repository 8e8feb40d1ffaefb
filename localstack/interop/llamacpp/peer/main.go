// Command peer answers questions about a GGUF file with llama.cpp, so that the
// tiny engine can be compared with it: a line of JSON a question on standard
// input, a line of JSON an answer on standard output.
//
//	{"tokenize":"text"}                          → {"tokens":[…]}, without special tokens
//	{"text":[ids]}                               → {"text":"…"}
//	{"greedy":{"prompt":[ids],"tokens":24}}      → {"tokens":[…],"margin":0.31}: the smallest lead of a chosen token over the next
//	{"logits":[ids]}                             → {"logits":[…]} after the last id
//	{"pace":{"prompt":[ids],"tokens":64,"streams":32}} → {"seconds":…,"cpu_seconds":…,"peak_mib":…}
//
// It stands in a module of its own: the product needs no llama.cpp, and the
// library comes from elsewhere (localstack/interop/llamacpp/install.sh).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	lib := flag.String("lib", "", "folder with llama.cpp's libraries")
	file := flag.String("model", "", "GGUF file")
	threads := flag.Int("threads", 1, "threads")
	fast := flag.Bool("fast", false, "llama.cpp's own defaults: keys and values as f16, and flash attention where it thinks fit; otherwise plain sums in f32")
	flag.Parse()
	if err := run(*lib, *file, *threads, *fast, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// question is one of its fields.
type question struct {
	Tokenize *string `json:"tokenize"`
	Text     []int32 `json:"text"`
	Logits   []int32 `json:"logits"`
	Greedy   *struct {
		Prompt []int32 `json:"prompt"`
		Tokens int     `json:"tokens"`
	} `json:"greedy"`
	Pace *struct {
		Prompt  []int32 `json:"prompt"`
		Tokens  int     `json:"tokens"`
		Streams int     `json:"streams"`
	} `json:"pace"`
}

func run(lib, file string, threads int, fast bool, in io.Reader, out io.Writer) error {
	m, err := open(lib, file, threads, fast)
	if err != nil {
		return err
	}
	defer m.close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<26)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("a question: %w", err)
		}
		a, err := m.answer(q)
		if err != nil {
			return err
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (m *loaded) answer(q question) (any, error) {
	switch {
	case q.Tokenize != nil:
		return map[string]any{"tokens": m.tokenize(*q.Tokenize)}, nil
	case q.Text != nil:
		return map[string]any{"text": m.text(q.Text)}, nil
	case q.Logits != nil:
		row, err := m.logits(q.Logits)
		return map[string]any{"logits": row}, err
	case q.Greedy != nil:
		tokens, margin, err := m.greedy(q.Greedy.Prompt, q.Greedy.Tokens)
		return map[string]any{"tokens": tokens, "margin": margin}, err
	case q.Pace != nil:
		return m.pace(q.Pace.Prompt, q.Pace.Tokens, q.Pace.Streams)
	}
	return nil, fmt.Errorf("a question without one of its fields")
}
