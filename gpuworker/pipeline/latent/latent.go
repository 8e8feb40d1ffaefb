// Package latent is a deterministic stand-in for a generator of latents, such as a video model:
// it has the tensors, the denoising steps and the three regimes of recompute of one, and no
// weights. Drills and measurements of the pipeline use it.
//
//	request body ─▶ embeddings, noise, context (A) ─▶ denoising steps × ranks (B) ─▶ digest (C)
//
// The same request has the same answer: everything is derived from its bytes. Each rank
// computes a range of the latents in each step, and all gather the ranges. The sum that couples
// them adds in the order of the ranks, so that the answer depends on the number of ranks alone.
package latent

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sync"

	"lukechampine.com/blake3"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/stage0"
	"rollout/gpuworker/pipeline/stage1"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// The shape of a chunk.
const (
	Frames   = 3
	Channels = 4
	Height   = 16
	Width    = 16
	Tokens   = 8
	Features = 16
	Steps    = 4
)

const size = Frames * Channels * Height * Width

// Engine is stage 0. It implements engine.Engine and stage0.Source: the answer to a request is
// the digest of its latents.
type Engine struct {
	Name   string
	Regime pipeline.Regime

	mu      sync.Mutex
	pending []*chunk
	wake    func()
}

// OnPending sets the function that is called when a request is added; nil sets none.
func (e *Engine) OnPending(wake func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake = wake
}

// Ready returns the name.
func (e *Engine) Ready(context.Context) (string, error) { return e.Name, nil }

// Close does nothing: the engine has nothing of its own.
func (e *Engine) Close() error { return nil }

// Answer implements engine.Engine.
func (e *Engine) Answer(ctx context.Context, r engine.Request, _ func()) (engine.Answer, error) {
	c := &chunk{engine: e, ctx: ctx, body: r.Body, done: make(chan outcome, 1)}
	e.mu.Lock()
	e.pending = append(e.pending, c)
	wake := e.wake
	e.mu.Unlock()
	if wake != nil {
		wake()
	}
	select {
	case o := <-c.done:
		return o.answer, o.err
	case <-ctx.Done():
		return engine.Answer{}, fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the pipeline")
	}
}

// Pending implements stage0.Source.
func (e *Engine) Pending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.pending) > 0 && e.pending[0].ctx.Err() != nil {
		e.pending = e.pending[1:]
	}
	return len(e.pending) > 0
}

// Take implements stage0.Source.
func (e *Engine) Take() stage0.Chunk {
	if !e.Pending() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.pending[0]
	e.pending = e.pending[1:]
	return c
}

type outcome struct {
	answer engine.Answer
	err    error
}

// chunk is a request on its way through the pipeline.
type chunk struct {
	engine *Engine
	ctx    context.Context
	body   []byte
	done   chan outcome
}

// Prepare implements stage0.Chunk.
func (c *chunk) Prepare() (*wire.Envelope, error) {
	seed := blake3.Sum256(c.body)
	e := &wire.Envelope{Height: Height, Width: Width, NumDenoiseSteps: Steps, InitCache: true, ResetKVCache: true,
		ResetCrossAttnCache: true, BaseSeed: int64(binary.LittleEndian.Uint64(seed[:])), KVCacheAttentionBias: 0.3,
		NoiseScale: 0.7, DoKVRecompute: c.engine.Regime != pipeline.R1, LatentAnchor: c.engine.Regime == pipeline.R0}
	e.Tensors = []wire.Tensor{
		wire.BF16s("conditioning_embeds", noise(c.body, "conditioning", Tokens*Features), 1, Tokens, Features),
		wire.BF16s("latents_in", noise(c.body, "latents", size), Frames, Channels, Height, Width),
		wire.Int64s(wire.KeySteps, []int64{1000, 750, 500, 250}),
	}
	if c.engine.Regime.NeedsContext() {
		anchor := noise(c.body, "context", size)
		e.Tensors = append(e.Tensors, wire.BF16s(wire.KeyContext, anchor, Frames, Channels, Height, Width))
	}
	return e, nil
}

// noise returns n numbers of [-1, 1) that depend on the body and the purpose alone.
func noise(body []byte, purpose string, n int) []float32 {
	h := blake3.New(32, nil)
	_, _ = h.Write([]byte(purpose))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(body)
	b := make([]byte, 2*n)
	_, _ = h.XOF().Read(b)
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(int16(binary.LittleEndian.Uint16(b[2*i:]))) / (1 << 15)
	}
	return out
}

// Decode implements stage0.Chunk.
func (c *chunk) Decode(r *wire.Result) error {
	t := r.Tensor("latents_out")
	if len(t.Data) != 2*size {
		return fault.New(fault.Corrupt, "latents_out has the shape %v: %d elements are expected", t.Shape, size)
	}
	sum := blake3.Sum256(t.Data)
	c.done <- outcome{answer: engine.Answer{Text: "latents " + hex.EncodeToString(sum[:]), FinishReason: "stop",
		Model: c.engine.Name, Usage: engine.Usage{PromptTokens: Tokens, CompletionTokens: int64(r.ObservedGeneratorCalls)}}}
	return nil
}

// Fail implements stage0.Chunk.
func (c *chunk) Fail(err error) { c.done <- outcome{err: err} }

// Flushed implements stage0.Chunk: a request that is still waited for is sent again, first.
func (c *chunk) Flushed() {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	c.engine.pending = append([]*chunk{c}, c.engine.pending...)
}

// Generator is stage 1 on one rank of the mesh.
type Generator struct{}

// Plan implements stage1.Generator.
func (Generator) Plan(e *wire.Envelope) (int, error) {
	regime, err := pipeline.RegimeOf(e.DoKVRecompute, e.LatentAnchor)
	return regime.Calls(e.NumDenoiseSteps), err
}

// Generate implements stage1.Generator.
func (Generator) Generate(m *group.Mesh, e *wire.Envelope) (stage1.Output, error) {
	in := e.Tensor("latents_in")
	x, conditioning := in.Float32s(), e.Tensor("conditioning_embeds").Float32s()
	if len(x) == 0 || len(conditioning) == 0 {
		return stage1.Output{}, fault.New(fault.Corrupt, "latents_in or conditioning_embeds is empty")
	}
	var out stage1.Output
	if e.DoKVRecompute {
		half := len(x) / 2
		anchor := slices.Concat(x[half:], x[:half]) // R0: the mesh's own latents, of other frames
		if !e.LatentAnchor {
			anchor = e.Tensor(wire.KeyContext).Float32s() // R0a; never the decoded frames
		}
		if len(anchor) != len(x) {
			return out, fault.New(fault.Corrupt, "context_frames has %d elements: latents_in has %d", len(anchor), len(x))
		}
		if err := step(m, x, anchor, 0.25); err != nil {
			return out, err
		}
		out.Calls++
	}
	for _, at := range e.Tensor(wire.KeySteps).Int64s() {
		weight := float32(e.NoiseScale) * float32(at%1024) / 1024
		if err := step(m, x, conditioning, weight); err != nil {
			return out, err
		}
		out.Calls++
	}
	out.Frame = e.CurrentStartFrame + int64(in.Shape[0])
	out.Tensors = []wire.Tensor{wire.BF16s("latents_out", x, in.Shape...)}
	return out, nil
}

// step moves each latent towards an element of the target, and all of them by their mean.
func step(m *group.Mesh, x, target []float32, weight float32) error {
	from, to := m.Rank()*len(x)/m.Size(), (m.Rank()+1)*len(x)/m.Size()
	sum := []float32{0}
	for i := from; i < to; i++ {
		sum[0] += x[i]
	}
	if err := m.AllReduce(sum); err != nil {
		return err
	}
	mean := sum[0] / float32(len(x))
	own := make([]float32, to-from)
	for i := range own {
		v := float32(x[from+i] * (1 - weight))
		own[i] = v + float32(target[(from+i)%len(target)]*weight) - float32(mean*weight)
	}
	blocks, err := m.AllGatherFloats(own)
	if err != nil {
		return err
	}
	at := 0
	for _, b := range blocks {
		at += copy(x[at:], b)
	}
	if at != len(x) {
		return fault.New(fault.Corrupt, "the ranks have %d of %d latents", at, len(x))
	}
	return nil
}
