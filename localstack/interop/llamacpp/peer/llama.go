package main

import (
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// loaded is a model that llama.cpp has loaded.
type loaded struct {
	model   llama.Model
	vocab   llama.Vocab
	context int // maximum number of tokens of a sequence
	size    int // size of the vocabulary
	threads int
	fast    bool // llama.cpp's defaults; otherwise f32 without flash attention
}

// open loads a GGUF file. lib is the folder of llama.cpp's libraries.
func open(lib, file string, threads int, fast bool) (*loaded, error) {
	if err := llama.Load(lib); err != nil {
		return nil, fmt.Errorf("load llama.cpp from %q: %w", lib, err)
	}
	llama.LogSet(llama.LogSilent())
	llama.Init()
	p := llama.ModelDefaultParams()
	p.SetCPUOnly()
	model, err := llama.ModelLoadFromFile(file, p)
	if err != nil {
		return nil, fmt.Errorf("load %s into llama.cpp: %w", file, err)
	}
	if model == 0 {
		return nil, fmt.Errorf("llama.cpp cannot load %s", file)
	}
	m := &loaded{model: model, vocab: llama.ModelGetVocab(model), threads: threads, fast: fast}
	m.context, m.size = int(llama.ModelNCtxTrain(model)), int(llama.VocabNTokens(m.vocab))
	return m, nil
}

func (m *loaded) close() {
	_ = llama.ModelFree(m.model) // ignored, because the process ends
	llama.Close()
}

func (m *loaded) tokenize(text string) []int32 {
	out := []int32{}
	for _, t := range llama.Tokenize(m.vocab, text, false, false) {
		out = append(out, int32(t))
	}
	return out
}

func (m *loaded) text(ids []int32) string {
	tokens := make([]llama.Token, len(ids))
	for i, id := range ids {
		tokens[i] = llama.Token(id)
	}
	return llama.Detokenize(m.vocab, tokens, false, true)
}

// decoder runs a number of sequences in parallel.
type decoder struct {
	m     *loaded
	ctx   llama.Context
	batch llama.Batch
}

func (m *loaded) decoder(streams int) (*decoder, error) {
	p := llama.ContextDefaultParams()
	p.NCtx, p.NSeqMax = uint32(m.context*streams), uint32(streams)
	p.NBatch, p.NUbatch = uint32(max(m.context, streams)), uint32(max(m.context, streams))
	p.NThreads, p.NThreadsBatch = int32(m.threads), int32(m.threads)
	if !m.fast {
		p.TypeK, p.TypeV = llama.GGMLTypeF32, llama.GGMLTypeF32
		p.FlashAttentionType = llama.FlashAttentionTypeDisabled
	}
	ctx, err := llama.InitFromModel(m.model, p)
	if err != nil {
		return nil, fmt.Errorf("create a context of llama.cpp: %w", err)
	}
	return &decoder{m: m, ctx: ctx, batch: llama.BatchInit(int32(p.NBatch), 0, 1)}, nil
}

func (d *decoder) close() {
	_ = llama.BatchFree(d.batch) // both errors are ignored, because nothing follows
	_ = llama.Free(d.ctx)
}

// add adds tokens of sequence s, from position at on, to the batch. llama.cpp
// computes logits only after the last of them.
func (d *decoder) add(s int, at int, tokens ...int32) error {
	for i, t := range tokens {
		ids, last := []llama.SeqId{llama.SeqId(s)}, i == len(tokens)-1
		if err := d.batch.Add(llama.Token(t), llama.Pos(at+i), ids, last); err != nil {
			return err
		}
	}
	return nil
}

// run computes the batch.
func (d *decoder) run() error {
	code, err := llama.Decode(d.ctx, d.batch)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("llama.cpp's decode returned %d for %d tokens", code, d.batch.NTokens)
	}
	return nil
}

// row returns the logits after the token at an index of the batch.
func (d *decoder) row(index int) ([]float32, error) {
	row, err := llama.GetLogitsIth(d.ctx, int32(index), d.m.size)
	if err == nil && row == nil {
		err = fmt.Errorf("llama.cpp has no logits at index %d of the batch", index)
	}
	return row, err
}

// logits returns the logits after the prompt.
func (m *loaded) logits(prompt []int32) ([]float32, error) {
	d, err := m.decoder(1)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.add(0, 0, prompt...); err != nil {
		return nil, err
	}
	if err := d.run(); err != nil {
		return nil, err
	}
	row, err := d.row(len(prompt) - 1)
	return append([]float32(nil), row...), err
}

// greedy returns n tokens after the prompt, each the likeliest one; of equally likely
// tokens, the lowest id. margin is the smallest lead of a chosen token.
func (m *loaded) greedy(prompt []int32, n int) (out []int32, margin float32, err error) {
	d, err := m.decoder(1)
	if err != nil {
		return nil, 0, err
	}
	defer d.close()
	margin = math.MaxFloat32
	next, at := prompt, 0
	for len(out) < n {
		_ = d.batch.Clear() // never fails
		if err := d.add(0, at, next...); err != nil {
			return nil, 0, err
		}
		if err := d.run(); err != nil {
			return nil, 0, err
		}
		row, err := d.row(len(next) - 1)
		if err != nil {
			return nil, 0, err
		}
		best, lead := likeliest(row)
		margin = min(margin, lead)
		at += len(next)
		next = []int32{best}
		out = append(out, best)
	}
	return out, margin, nil
}

// likeliest returns the token with the greatest logit, and the difference to the
// second greatest.
func likeliest(row []float32) (best int32, lead float32) {
	second := float32(math.Inf(-1))
	for i, v := range row[1:] {
		if v > row[best] {
			best, second = int32(i+1), row[best]
		} else if v > second {
			second = v
		}
	}
	return best, row[best] - second
}

// throughput is the answer to a pace request.
type throughput struct {
	Seconds    float64 `json:"seconds"`     // elapsed time
	CPUSeconds float64 `json:"cpu_seconds"` // processor time of this process
	PeakMiB    float64 `json:"peak_mib"`    // peak memory of this process
}

// measureThroughput generates n tokens, greedily, in each of streams parallel
// sequences that begin with the prompt. The times do not include the prompt.
func (m *loaded) measureThroughput(prompt []int32, n, streams int) (a throughput, err error) {
	if streams < 1 || len(prompt) < 1 || len(prompt)+n > m.context {
		return a, fmt.Errorf("pace with %d streams and %d + %d tokens: the context is %d",
			streams, len(prompt), n, m.context)
	}
	d, err := m.decoder(streams)
	if err != nil {
		return a, err
	}
	defer d.close()
	next := make([]int32, streams)
	for s := range streams {
		_ = d.batch.Clear() // never fails
		if err := d.add(s, 0, prompt...); err != nil {
			return a, err
		}
		if err := d.run(); err != nil {
			return a, err
		}
		row, err := d.row(len(prompt) - 1)
		if err != nil {
			return a, err
		}
		next[s], _ = likeliest(row)
	}
	start, cpu := time.Now(), cpuTime()
	for i := range n {
		_ = d.batch.Clear()
		for s := range streams {
			if err := d.add(s, len(prompt)+i, next[s]); err != nil {
				return a, err
			}
		}
		if err := d.run(); err != nil {
			return a, err
		}
		for s := range streams {
			row, err := d.row(s)
			if err != nil {
				return a, err
			}
			next[s], _ = likeliest(row)
		}
	}
	a.Seconds, a.CPUSeconds = time.Since(start).Seconds(), (cpuTime() - cpu).Seconds()
	var u syscall.Rusage
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	a.PeakMiB = float64(u.Maxrss) / 1024
	return a, err
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
