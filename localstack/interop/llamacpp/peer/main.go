// Command peer loads a GGUF file into llama.cpp and answers requests about it, so
// that tests can compare the tiny engine with llama.cpp. Each line of standard input
// is a request in JSON, and each line of standard output its answer:
//
//	{"tokenize":"text"}                      → {"tokens":[…]}, without special tokens
//	{"text":[ids]}                           → {"text":"…"}
//	{"greedy":{"prompt":[ids],"tokens":24}}  → {"tokens":[…],"margin":0.31}
//	{"logits":[ids]}                         → {"logits":[…]}, after the last id
//	{"pace":{"prompt":[ids],"tokens":64,"streams":32}}
//	                                         → {"seconds":…,"cpu_seconds":…,"peak_mib":…}
//
// margin is the smallest difference between the logits of a chosen token and of the
// second likeliest.
//
// It is a separate module, because the product does not need llama.cpp.
// localstack/interop/llamacpp/install.sh downloads the libraries.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	lib := flag.String("lib", "", "folder with llama.cpp's libraries")
	file := flag.String("model", "", "GGUF file")
	threads := flag.Int("threads", 1, "number of threads")
	fast := flag.Bool("fast", false,
		"use llama.cpp's defaults (keys and values in f16, flash attention) instead of f32 without flash attention")
	flag.Parse()
	if err := run(*lib, *file, *threads, *fast, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// request is a request. Exactly one field is set.
type request struct {
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

// run answers requests until the end of the input.
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
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("parse a request: %w", err)
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

// answer returns the answer to a request.
func (m *loaded) answer(q request) (any, error) {
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
		return m.measureThroughput(q.Pace.Prompt, q.Pace.Tokens, q.Pace.Streams)
	}
	return nil, errors.New("the request has none of the fields tokenize, text, logits, greedy and pace")
}
