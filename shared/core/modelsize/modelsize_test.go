package modelsize_test

import (
	"math"
	"strings"
	"testing"

	"rollout/shared/core/modelsize"
	"rollout/shared/fault"
)

// Configs as their models have them.
const (
	qwen05 = `{"hidden_size":896,"intermediate_size":4864,"max_position_embeddings":32768,"num_attention_heads":14,
		"num_hidden_layers":24,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true,
		"torch_dtype":"bfloat16","sliding_window":32768,"use_sliding_window":false}`
	llama8 = `{"hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":131072,"num_attention_heads":32,
		"num_hidden_layers":32,"num_key_value_heads":8,"vocab_size":128256,"tie_word_embeddings":false,
		"torch_dtype":"bfloat16"}`
	qwen32 = `{"hidden_size":5120,"intermediate_size":27648,"max_position_embeddings":32768,"num_attention_heads":40,
		"num_hidden_layers":64,"num_key_value_heads":8,"vocab_size":152064,"tie_word_embeddings":false,
		"torch_dtype":"bfloat16"}`
	llama70 = `{"hidden_size":8192,"intermediate_size":28672,"max_position_embeddings":131072,"num_attention_heads":64,
		"num_hidden_layers":80,"num_key_value_heads":8,"vocab_size":128256,"tie_word_embeddings":false,
		"torch_dtype":"bfloat16"}`
)

func parse(t *testing.T, text string) modelsize.Model {
	t.Helper()
	m, err := modelsize.Parse([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWeightsAreThoseOfKnownModels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config   string
		billions float64 // of 2 bytes
	}{
		"Qwen2.5-0.5B": {qwen05, 0.494}, "Llama-3.1-8B": {llama8, 8.03}, "Qwen2.5-32B": {qwen32, 32.76},
		"Llama-3.1-70B": {llama70, 70.55},
		"Mixtral-8x7B": {`{"hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":32768,
			"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"vocab_size":32000,
			"num_local_experts":8,"torch_dtype":"bfloat16"}`, 46.7},
		"Llama-3.1-70B in AWQ, a quarter": {`{"quantization_config":{"quant_method":"awq","bits":4},` + llama70[1:],
			(70.55-2.1)*0.28 + 2.1},
	} {
		if got := parse(t, c.config).WeightBytes / 2e9; math.Abs(got-c.billions) > 0.02*c.billions {
			t.Errorf("%s: %.2f billion values, want %.2f", name, got, c.billions)
		}
	}
	m, err := modelsize.Parse([]byte(llama8), 16_060_556_376)
	if err != nil || m.WeightBytes != 16_060_556_376 {
		t.Errorf("the files have %v bytes, %v", m.WeightBytes, err)
	}
}

// An 8B model with its own context of 131,072 tokens needs 16 GiB of cache, and a card of
// 24 GB has about 5 GiB left.
func TestContextFitsBesideTheWeights(t *testing.T) {
	t.Parallel()
	l4, l40s, h100 := 23034.0/1024, 46068.0/1024, 81559.0/1024
	for name, c := range map[string]struct {
		config      string
		card        modelsize.Card
		context     int
		cache, left float64
		most        int
		fits        bool
	}{
		"8B on 24 GB":                 {llama8, modelsize.Card{GiB: l4}, 0, 16, 4.79, 38912, false},
		"8B on 24 GB, 32768 tokens":   {llama8, modelsize.Card{GiB: l4}, 32768, 4, 4.79, 38912, true},
		"8B, a cache of one byte":     {llama8, modelsize.Card{GiB: l4, CacheBytes: 1}, 0, 8, 4.79, 77824, false},
		"8B, weights of one byte":     {llama8, modelsize.Card{GiB: l4, WeightFactor: 0.5}, 65536, 8, 12.26, 100352, true},
		"8B on 48 GB":                 {llama8, modelsize.Card{GiB: l40s}, 0, 16, 25.03, 131072, true},
		"8B, half of the card":        {llama8, modelsize.Card{GiB: l40s, Share: 0.4}, 8192, 1, 2.54, 20480, true},
		"0.5B on 24 GB":               {qwen05, modelsize.Card{GiB: l4}, 0, 0.375, 18.82, 32768, true},
		"32B on 24 GB":                {qwen32, modelsize.Card{GiB: l4}, 0, 8, -41.3, 0, false},
		"32B on four of 24 GB":        {qwen32, modelsize.Card{GiB: l4, Parallel: 4}, 0, 2, 4.49, 32768, true},
		"70B on four of 48 GB":        {llama70, modelsize.Card{GiB: l40s, Parallel: 4}, 0, 10, 7.13, 93184, false},
		"70B on two of 80 GB":         {llama70, modelsize.Card{GiB: h100, Parallel: 2}, 8192, 1.25, 5.48, 35840, true},
		"more GPUs than heads in 70B": {llama70, modelsize.Card{GiB: l4, Parallel: 16}, 0, 5, 11.53, 131072, true},
	} {
		f := parse(t, c.config).Fit(c.card, c.context)
		if math.Abs(f.CacheGiB-c.cache) > 0.01 || math.Abs(f.LeftGiB-c.left) > 0.1 || f.Most != c.most || f.OK() != c.fits {
			t.Errorf("%s: cache %.2f, left %.2f, most %d, fits %v, want %.2f, %.2f, %d, %v",
				name, f.CacheGiB, f.LeftGiB, f.Most, f.OK(), c.cache, c.left, c.most, c.fits)
		}
	}
}

func TestConfigsOfOtherShapesAreRead(t *testing.T) {
	t.Parallel()
	seeing := parse(t, `{"torch_dtype":"bfloat16","text_config":`+llama8+`,"vision_config":{"hidden_size":7}}`)
	if seeing.Layers != 32 || seeing.Bound {
		t.Errorf("a model that sees: %+v", seeing)
	}
	latent := parse(t, `{"hidden_size":7168,"num_hidden_layers":61,"num_attention_heads":128,"kv_lora_rank":512,
		"qk_rope_head_dim":64,"max_position_embeddings":163840}`)
	if got := latent.CacheBytesPerToken(modelsize.Card{Parallel: 8}); got != 61*576*2 {
		t.Errorf("a token of latent attention takes %v bytes", got)
	}
	windows := parse(t, `{"layer_types":["sliding_attention","full_attention"],`+llama8[1:])
	if !windows.Bound || parse(t, qwen05).Bound {
		t.Error("windows are not seen, or seen where they are off")
	}
	for name, text := range map[string]string{
		"no JSON": "<html>", "another kind of model": `{"hidden_size":768}`,
		"more heads than values": `{"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":16,
			"max_position_embeddings":1024}`,
		"heads below none":  strings.Replace(llama8, `"num_key_value_heads":8`, `"num_key_value_heads":-1`, 1),
		"a size below none": `{"head_dim":-128,` + llama8[1:],
	} {
		if _, err := modelsize.Parse([]byte(text), 0); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
