package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

var update = flag.Bool("update", false, "write the golden files")

// envelope returns a valid envelope of the latent contract, in the regime R0a.
func envelope() *wire.Envelope {
	return &wire.Envelope{
		Version: 1, Action: pipeline.Infer, CallID: 7, ChunkIndex: 5, CacheEpoch: 2, Height: 16, Width: 24,
		CurrentStartFrame: 12, DoKVRecompute: true, NumDenoiseSteps: 2, ExpectedGeneratorCalls: 3, InitCache: true,
		ResetKVCache: true, BaseSeed: -42, KVCacheAttentionBias: 0.25, NoiseScale: 0.7, DisableVACE: true,
		Tensors: []wire.Tensor{
			wire.BF16s("conditioning_embeds", []float32{1, -2, 0.5, 3}, 1, 2, 2),
			wire.BF16s("latents_in", []float32{0, 1}, 1, 1, 1, 2),
			wire.Int64s(wire.KeySteps, []int64{1000, 500}),
			wire.BF16s(wire.KeyContext, []float32{4}, 1, 1, 1, 1),
		},
	}
}

func result() *wire.Result {
	digest := int64(-9)
	return &wire.Result{Version: 1, CallID: 7, ChunkIndex: 5, CacheEpoch: 2, ObservedGeneratorCalls: 3,
		MeshCurrentStartFrame: 15, OutputDigest: &digest, StageMS: 12.5, IdleMS: 0.25,
		Tensors: []wire.Tensor{wire.BF16s("latents_out", []float32{1, 2}, 1, 1, 1, 2)}}
}

func bytesOf(t testing.TB, p *wire.Prepared, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	n, err := p.WriteTo(&b)
	if err != nil || int(n) != b.Len() {
		t.Fatalf("wrote %d of %d bytes, %v", n, b.Len(), err)
	}
	return b.Bytes()
}

// TestMessagesHaveTheGoldenBytes pins the format of version 1.
func TestMessagesHaveTheGoldenBytes(t *testing.T) {
	t.Parallel()
	e, err := wire.Prepare(envelope(), wire.Latent())
	golden(t, "envelope-v1.hex", bytesOf(t, e, err))
	noop := &wire.Envelope{Version: 1, Action: pipeline.Shutdown, CallID: 8, DisableVACE: true, Reason: "end"}
	e, err = wire.Prepare(noop, wire.Latent())
	golden(t, "shutdown-v1.hex", bytesOf(t, e, err))
	r, err := wire.PrepareResult(result(), wire.Latent())
	golden(t, "result-v1.hex", bytesOf(t, r, err))
	golden(t, "block-v1.hex", wire.AppendBlock(nil, wire.KindMesh, 3, []byte{1, 2, 3}))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	text := hex.Dump(got)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s has changed: a change needs a new version\n%s", name, text)
	}
}

func TestMessagesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	e, err := wire.Prepare(envelope(), wire.Latent())
	r := bytes.NewReader(bytesOf(t, e, err))
	h, err := wire.ReadHeader(r)
	if err != nil || h.Kind != wire.KindEnvelope || h.Tensors != 4 || h.Version != 1 || h.Call != 7 || h.Chunk != 5 ||
		h.Epoch != 2 || h.Action != pipeline.Infer {
		t.Fatalf("header %+v, %v", h, err)
	}
	if got, err := wire.ReadEnvelope(r, h, wire.Latent()); err != nil || !reflect.DeepEqual(got, envelope()) {
		t.Errorf("%+v, %v", got, err)
	}
	p, err := wire.PrepareResult(result(), wire.Latent())
	r = bytes.NewReader(bytesOf(t, p, err))
	if h, err = wire.ReadHeader(r); err != nil {
		t.Fatal(err)
	}
	if got, err := wire.ReadResult(r, h, wire.Latent()); err != nil || !reflect.DeepEqual(got, result()) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWrongEnvelopesAreInvalidOnBothSides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(e *wire.Envelope)
		says   string
	}{
		"version":       {func(e *wire.Envelope) { e.Version = 2 }, "pp_envelope_version"},
		"action":        {func(e *wire.Envelope) { e.Action = 9 }, "action"},
		"negative call": {func(e *wire.Envelope) { e.CallID = -1 }, "call_id"},
		"vace":          {func(e *wire.Envelope) { e.DisableVACE = false }, "pp_disable_vace"},
		"height":        {func(e *wire.Envelope) { e.Height = 0 }, "height"},
		"width":         {func(e *wire.Envelope) { e.Width = 1 << 20 }, "width"},
		"frame":         {func(e *wire.Envelope) { e.CurrentStartFrame = -1 }, "current_start_frame"},
		"steps":         {func(e *wire.Envelope) { e.NumDenoiseSteps = 0 }, "num_denoise_steps"},
		"step list": {func(e *wire.Envelope) {
			e.NumDenoiseSteps, e.ExpectedGeneratorCalls = 3, 4
		}, wire.KeySteps},
		"calls": {func(e *wire.Envelope) {
			e.ExpectedGeneratorCalls = 2
		}, "expected_generator_calls"},
		"bias": {func(e *wire.Envelope) {
			e.KVCacheAttentionBias = math.Inf(1)
		}, "kv_cache_attention_bias"},
		"noise": {func(e *wire.Envelope) {
			e.NoiseScale = math.NaN()
		}, "noise_scale"},
		"missing context": {func(e *wire.Envelope) {
			e.Tensors = e.Tensors[:3]
		}, wire.KeyContext},
		"context without it": {func(e *wire.Envelope) {
			e.DoKVRecompute, e.ExpectedGeneratorCalls = false, 2
		}, wire.KeyContext},
		"context with an anchor": {func(e *wire.Envelope) {
			e.LatentAnchor = true
		}, wire.KeyContext},
		"anchor alone": {func(e *wire.Envelope) {
			e.DoKVRecompute, e.LatentAnchor = false, true
		}, "latent_anchor"},
		"order": {func(e *wire.Envelope) {
			e.Tensors[0], e.Tensors[1] = e.Tensors[1], e.Tensors[0]
		}, "conditioning"},
		"type": {func(e *wire.Envelope) {
			e.Tensors[0].DType = wire.UInt8
		}, "conditioning_embeds"},
		"unknown type": {func(e *wire.Envelope) {
			e.Tensors[0].DType = "float8"
		}, "float8"},
		"rank": {func(e *wire.Envelope) {
			e.Tensors[0].Shape = []int{4}
		}, "dimensions"},
		"overflow": {func(e *wire.Envelope) {
			e.Tensors[0].Shape = []int{1 << 31, 1 << 31, 1 << 31}
		}, "shape"},
		"data": {func(e *wire.Envelope) {
			e.Tensors[0].Data = nil
		}, "bytes"},
		"not finite": {func(e *wire.Envelope) {
			e.Tensors[0] = wire.BF16s("conditioning_embeds", []float32{1, 2, 3, float32(math.NaN())}, 1, 2, 2)
		}, "finite"},
	} {
		e := envelope()
		c.change(e)
		_, err := wire.Prepare(e, wire.Latent())
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMessagesWithoutAPayloadSkipItsChecks(t *testing.T) {
	t.Parallel()
	for _, a := range []pipeline.Action{pipeline.Noop, pipeline.Shutdown, pipeline.Error} {
		e := &wire.Envelope{Version: 1, Action: a, DisableVACE: true}
		if err := e.Validate(wire.Latent()); err != nil {
			t.Errorf("%v: %v", a, err)
		}
		e.Tensors = []wire.Tensor{wire.Int64s("x", nil)}
		if err := e.Validate(wire.Latent()); err == nil {
			t.Errorf("%v with a tensor is valid", a)
		}
	}
}

func TestWrongResultsAreInvalid(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *wire.Result){
		"version":   func(r *wire.Result) { r.Version = 0 },
		"epoch":     func(r *wire.Result) { r.CacheEpoch = -1 },
		"calls":     func(r *wire.Result) { r.ObservedGeneratorCalls = -1 },
		"duration":  func(r *wire.Result) { r.StageMS = math.NaN() },
		"no tensor": func(r *wire.Result) { r.Tensors = nil },
		"shape":     func(r *wire.Result) { r.Tensors[0].Shape = []int{2} },
		"infinite": func(r *wire.Result) {
			x := make([]float32, 9)
			x[8] = float32(math.Inf(-1))
			r.Tensors[0] = wire.BF16s("latents_out", x, 1, 1, 1, 9)
		},
		"infinite at the start": func(r *wire.Result) {
			x := make([]float32, 8)
			x[1] = float32(math.Inf(1))
			r.Tensors[0] = wire.BF16s("latents_out", x, 1, 1, 1, 8)
		},
	} {
		r := result()
		change(r)
		if _, err := wire.PrepareResult(r, wire.Latent()); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTensorsCarryTheirTag(t *testing.T) {
	t.Parallel()
	e, err := wire.Prepare(envelope(), wire.Latent())
	b := bytesOf(t, e, err)
	first := bytes.Index(b, envelope().Tensors[0].Data) - 18
	for at := first; at < first+18; at++ {
		wrong := bytes.Clone(b)
		wrong[at] ^= 1
		r := bytes.NewReader(wrong)
		h, err := wire.ReadHeader(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ReadEnvelope(r, h, wire.Latent()); !fault.Is(err, fault.Corrupt) {
			t.Errorf("byte %d of the tag is wrong: %v", at-first, err)
		}
	}
}

func TestBF16RoundsToTheNearest(t *testing.T) {
	t.Parallel()
	for x, want := range map[float32]float32{
		0: 0, 1: 1, -2.5: -2.5, 1.00390625: 1, 1.01171875: 1.015625, // ties go to the even one
		3.3895314e38: 3.3895314e38,
	} {
		got := wire.BF16s("x", []float32{x}, 1).Float32s()[0]
		if math.Abs(float64(got-want)) > math.Abs(float64(want))*1e-2 || x >= 1 && x < 2 && got != want {
			t.Errorf("%v becomes %v, not %v", x, got, want)
		}
	}
	if got := wire.BF16s("x", []float32{float32(math.NaN())}, 1).Float32s()[0]; got == got {
		t.Errorf("NaN becomes %v", got)
	}
}

// FuzzReadMessage reads hostile bytes: there is a message that can be sent again, or an error.
func FuzzReadMessage(f *testing.F) {
	e, err := wire.Prepare(envelope(), wire.Latent())
	f.Add(bytesOf(f, e, err))
	p, err := wire.PrepareResult(result(), wire.Latent())
	f.Add(bytesOf(f, p, err))
	f.Add(wire.AppendBlock(nil, wire.KindWorld, 1, []byte("x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := wire.ReadHeader(r)
		if err != nil {
			checkReadError(t, err)
			return
		}
		switch h.Kind {
		case wire.KindEnvelope:
			e, err := wire.ReadEnvelope(r, h, wire.Latent())
			if err != nil {
				checkReadError(t, err)
				return
			}
			if e.Validate(wire.Latent()) == nil {
				if _, err := wire.Prepare(e, wire.Latent()); err != nil {
					t.Errorf("a valid envelope can't be sent: %v", err)
				}
			}
		case wire.KindResult:
			if _, err := wire.ReadResult(r, h, wire.Latent()); err != nil {
				checkReadError(t, err)
			}
		default:
			if _, err := wire.ReadBlock(r, h, nil); err != nil {
				checkReadError(t, err)
			}
		}
	})
}

func checkReadError(t *testing.T, err error) {
	t.Helper()
	if !fault.Is(err, fault.Corrupt) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("hostile bytes: %v", err)
	}
}
