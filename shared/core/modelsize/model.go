// Package modelsize computes what a language model needs of a GPU's memory: its weights,
// and the KV cache of its context. It reads a model's config.json as Hugging Face's
// libraries write it, and does arithmetic only.
//
//	config.json ──Parse──▶ Model ──Fit(card, context)──▶ what fits, and the largest context
package modelsize

import (
	"encoding/json"
	"strings"

	"rollout/shared/fault"
)

// Model is what the arithmetic needs of a model. Where WeightBytes alone are known, the
// others are 0.
type Model struct {
	Layers, KVHeads, HeadDim int
	// Context is the longest context in tokens, which servers take by default.
	Context int
	// WeightBytes are all weights together, at the bytes in which they are stored.
	WeightBytes float64
	// ValueBytes are those of one value of the weights, and of the cache by default.
	ValueBytes float64
	// LatentPerLayer is the number of cached values of a token in a layer of a model with
	// latent attention, which has no heads in its cache; else 0.
	LatentPerLayer int
	// Bound says that some layers cache less than the arithmetic says, such as those with
	// a sliding window: a context that does not fit by it may fit.
	Bound bool
}

// config is config.json, as far as it is read.
type config struct {
	Text *config `json:"text_config"` // of models that also see

	Hidden       int    `json:"hidden_size"`
	Layers       int    `json:"num_hidden_layers"`
	Heads        int    `json:"num_attention_heads"`
	KVHeads      int    `json:"num_key_value_heads"`
	HeadDim      int    `json:"head_dim"`
	Intermediate int    `json:"intermediate_size"`
	Vocabulary   int    `json:"vocab_size"`
	Context      int    `json:"max_position_embeddings"`
	DType        string `json:"dtype"`
	TorchDType   string `json:"torch_dtype"`
	Tied         *bool  `json:"tie_word_embeddings"`

	Experts       int `json:"num_experts"`
	LocalExperts  int `json:"num_local_experts"`
	RoutedExperts int `json:"n_routed_experts"`
	SharedExperts int `json:"n_shared_experts"`
	MoESize       int `json:"moe_intermediate_size"`

	KVRank   int `json:"kv_lora_rank"`
	RopeHead int `json:"qk_rope_head_dim"`

	SlidingWindow    *int     `json:"sliding_window"`
	UseSlidingWindow *bool    `json:"use_sliding_window"`
	LayerTypes       []string `json:"layer_types"`

	Quantization *struct {
		Method string `json:"quant_method"`
		Bits   int    `json:"bits"`
		In4Bit bool   `json:"load_in_4bit"`
	} `json:"quantization_config"`
}

// Parse reads a config.json. weights are the bytes of the files of weights, or 0 if they
// are not known: then they are computed. A config without the numbers that the arithmetic
// needs is Invalid.
func Parse(text []byte, weights float64) (Model, error) {
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return Model{}, fault.WithKind(fault.Invalid, err, "read the model's config.json")
	}
	if c.Text != nil {
		outer := c
		if c = *outer.Text; c.Quantization == nil {
			c.Quantization = outer.Quantization
		}
		if c.DType == "" && c.TorchDType == "" {
			c.DType, c.TorchDType = outer.DType, outer.TorchDType
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"num_hidden_layers", c.Layers}, {"hidden_size", c.Hidden}, {"num_attention_heads", c.Heads},
		{"max_position_embeddings", c.Context}} {
		if n.value <= 0 {
			return Model{}, fault.New(fault.Invalid, "the model's config.json has no %s", n.name)
		}
	}
	if c.HeadDim == 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim <= 0 || c.KVHeads <= 0 {
		return Model{}, fault.New(fault.Invalid, "the model's config.json has heads without a size: num_key_value_heads is "+
			"%d, and head_dim, or hidden_size for each head, is %d", c.KVHeads, c.HeadDim)
	}
	m := Model{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Context: c.Context, WeightBytes: weights,
		ValueBytes: c.valueBytes(), Bound: c.bound()}
	if c.KVRank > 0 {
		m.LatentPerLayer = c.KVRank + c.RopeHead
	}
	if m.WeightBytes == 0 {
		m.WeightBytes = c.weights()
	}
	return m, nil
}

// valueBytes returns the bytes of a value that is not quantized.
func (c config) valueBytes() float64 {
	dtype := c.DType
	if dtype == "" {
		dtype = c.TorchDType
	}
	switch {
	case strings.Contains(dtype, "float8"):
		return 1
	}
	return 2 // servers load float32 as bfloat16 or half, too
}

// bound reports whether not every layer caches the whole context.
func (c config) bound() bool {
	for _, kind := range c.LayerTypes {
		if kind != "full_attention" {
			return true
		}
	}
	off := c.UseSlidingWindow != nil && !*c.UseSlidingWindow
	return c.SlidingWindow != nil && *c.SlidingWindow > 0 && *c.SlidingWindow < c.Context && !off && len(c.LayerTypes) == 0
}

// weights computes the bytes of the weights: embeddings stay as they are where the layers
// are quantized.
func (c config) weights() float64 {
	hidden, heads := float64(c.Hidden), float64(c.Heads*c.HeadDim)
	attention := 2*hidden*heads + 2*hidden*float64(c.KVHeads*c.HeadDim)
	mlp := 3 * hidden * float64(c.Intermediate)
	if experts := max(c.Experts, c.LocalExperts, c.RoutedExperts); experts > 0 {
		size := c.MoESize
		if size == 0 {
			size = c.Intermediate
		}
		mlp = 3 * hidden * float64(size) * float64(experts+c.SharedExperts)
	}
	embeddings := hidden * float64(c.Vocabulary)
	if c.Tied == nil || !*c.Tied {
		embeddings *= 2
	}
	return float64(c.Layers)*(attention+mlp)*c.layerBytes() + embeddings*c.valueBytes()
}

// layerBytes returns the bytes of a value of the layers. Quantized values share scales,
// which take a part of a byte more.
func (c config) layerBytes() float64 {
	q := c.Quantization
	if q == nil {
		return c.valueBytes()
	}
	switch {
	case q.Bits == 4 || q.In4Bit || q.Method == "awq" || q.Method == "mxfp4":
		return 0.56
	case q.Bits == 8 || q.Method == "fp8" || q.Method == "fbgemm_fp8":
		return 1.02
	}
	return c.valueBytes()
}
