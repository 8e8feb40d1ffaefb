package wire

import (
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// Version is the version of envelopes and results.
const Version = 1

// Envelope is a message of stage 0 to the mesh. All fields from ChunkIndex on, but CacheEpoch,
// count with the action Infer alone.
type Envelope struct {
	Version    int             `json:"pp_envelope_version"`
	Action     pipeline.Action `json:"action"`
	CallID     int64           `json:"call_id"`
	ChunkIndex int64           `json:"chunk_index"`
	CacheEpoch int64           `json:"cache_epoch"`

	Height            int   `json:"height"`
	Width             int   `json:"width"`
	CurrentStartFrame int64 `json:"current_start_frame"`

	DoKVRecompute          bool `json:"do_kv_recompute"`
	LatentAnchor           bool `json:"latent_anchor"` // the regime R0; never implied
	NumDenoiseSteps        int  `json:"num_denoise_steps"`
	ExpectedGeneratorCalls int  `json:"expected_generator_calls"`

	InitCache           bool `json:"init_cache"`
	ResetKVCache        bool `json:"reset_kv_cache"`
	ResetCrossAttnCache bool `json:"reset_crossattn_cache"`

	BaseSeed             int64   `json:"base_seed"`
	KVCacheAttentionBias float64 `json:"kv_cache_attention_bias"`
	NoiseScale           float64 `json:"noise_scale"`
	DisableVACE          bool    `json:"pp_disable_vace"` // must be true: no contract has it
	Reason               string  `json:"reason,omitempty"`

	Tensors []Tensor `json:"-"`
}

// maxGeometry and maxSteps bound what a chunk may ask for.
const (
	maxGeometry = 1 << 16
	maxSteps    = 1 << 16
)

// IDs returns the message's ids.
func (e *Envelope) IDs() pipeline.IDs {
	return pipeline.IDs{Call: e.CallID, Chunk: e.ChunkIndex, Epoch: e.CacheEpoch}
}

// Tensor returns the tensor of the key, or the zero Tensor.
func (e *Envelope) Tensor(key string) Tensor { return find(e.Tensors, key) }

// Validate returns an Invalid fault for the first wrong field. Both sides call it. Messages
// without a payload are checked for their version, action, ids and the vace gate alone.
func (e *Envelope) Validate(c Contract) error {
	switch {
	case e.Version != Version:
		return fault.New(fault.Invalid, "pp_envelope_version is %d: this program speaks %d", e.Version, Version)
	case !e.Action.Valid():
		return fault.New(fault.Invalid, "action is %d: it must be at most %d", e.Action, pipeline.Error)
	case e.CallID < 0 || e.ChunkIndex < 0 || e.CacheEpoch < 0:
		return fault.New(fault.Invalid, "call_id %d, chunk_index %d, cache_epoch %d: none may be negative",
			e.CallID, e.ChunkIndex, e.CacheEpoch)
	case !e.DisableVACE:
		return fault.New(fault.Invalid, "pp_disable_vace is false: no stage supports vace; set it to true")
	case e.Action != pipeline.Infer:
		if len(e.Tensors) > 0 {
			return fault.New(fault.Invalid, "%v has %d tensors: only INFER has a payload", e.Action, len(e.Tensors))
		}
		return nil
	case e.Height < 1 || e.Height > maxGeometry || e.Width < 1 || e.Width > maxGeometry:
		return fault.New(fault.Invalid, "height %d, width %d: both must be 1 to %d", e.Height, e.Width, maxGeometry)
	case e.CurrentStartFrame < 0:
		return fault.New(fault.Invalid, "current_start_frame is %d: it must not be negative", e.CurrentStartFrame)
	case e.NumDenoiseSteps < 1 || e.NumDenoiseSteps > maxSteps:
		return fault.New(fault.Invalid, "num_denoise_steps is %d: it must be 1 to %d", e.NumDenoiseSteps, maxSteps)
	case e.KVCacheAttentionBias-e.KVCacheAttentionBias != 0 || e.NoiseScale-e.NoiseScale != 0:
		return fault.New(fault.Invalid, "kv_cache_attention_bias %v, noise_scale %v: both must be finite",
			e.KVCacheAttentionBias, e.NoiseScale)
	}
	regime, err := pipeline.RegimeOf(e.DoKVRecompute, e.LatentAnchor)
	if err != nil {
		return err
	}
	if want := regime.Calls(e.NumDenoiseSteps); e.ExpectedGeneratorCalls != want {
		return fault.New(fault.Invalid, "expected_generator_calls is %d: %d steps need %d",
			e.ExpectedGeneratorCalls, e.NumDenoiseSteps, want)
	}
	if err := check(c.Inputs, e.Tensors, regime.NeedsContext()); err != nil {
		return err
	}
	if n := e.Tensor(KeySteps).Shape[0]; n != e.NumDenoiseSteps {
		return fault.New(fault.Invalid, "%s has %d steps: num_denoise_steps is %d", KeySteps, n, e.NumDenoiseSteps)
	}
	return nil
}

// Result is what the mesh leader returns for a chunk. Durations are in milliseconds of the
// leader's clock.
type Result struct {
	Version                int     `json:"pp_result_version"`
	CallID                 int64   `json:"call_id"`
	ChunkIndex             int64   `json:"chunk_index"`
	CacheEpoch             int64   `json:"cache_epoch"`
	ObservedGeneratorCalls int     `json:"observed_generator_calls"`
	MeshCurrentStartFrame  int64   `json:"mesh_current_start_frame"`
	OutputDigest           *int64  `json:"output_digest_i64,omitempty"`
	StageMS                float64 `json:"t_b_ms"`
	IdleMS                 float64 `json:"t_mesh_idle_ms"`

	Tensors []Tensor `json:"-"`
}

// IDs returns the message's ids.
func (r *Result) IDs() pipeline.IDs {
	return pipeline.IDs{Call: r.CallID, Chunk: r.ChunkIndex, Epoch: r.CacheEpoch}
}

// Tensor returns the tensor of the key, or the zero Tensor.
func (r *Result) Tensor(key string) Tensor { return find(r.Tensors, key) }

// Validate returns an Invalid fault for the first wrong field. Both sides call it.
func (r *Result) Validate(c Contract) error {
	switch {
	case r.Version != Version:
		return fault.New(fault.Invalid, "pp_result_version is %d: this program speaks %d", r.Version, Version)
	case r.CallID < 0 || r.ChunkIndex < 0 || r.CacheEpoch < 0:
		return fault.New(fault.Invalid, "call_id %d, chunk_index %d, cache_epoch %d: none may be negative",
			r.CallID, r.ChunkIndex, r.CacheEpoch)
	case r.ObservedGeneratorCalls < 0 || r.MeshCurrentStartFrame < 0:
		return fault.New(fault.Invalid, "observed_generator_calls %d, mesh_current_start_frame %d: neither may be negative",
			r.ObservedGeneratorCalls, r.MeshCurrentStartFrame)
	case !(r.StageMS >= 0) || !(r.IdleMS >= 0) || r.StageMS-r.StageMS != 0 || r.IdleMS-r.IdleMS != 0:
		return fault.New(fault.Invalid, "t_b_ms %v, t_mesh_idle_ms %v: both must be finite and not negative",
			r.StageMS, r.IdleMS)
	}
	return check(c.Outputs, r.Tensors, false)
}

func find(ts []Tensor, key string) Tensor {
	for _, t := range ts {
		if t.Key == key {
			return t
		}
	}
	return Tensor{}
}
