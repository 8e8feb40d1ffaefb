package export

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"

	"rollout/gpuworker/tinylm/model"
	"rollout/shared/fault"
)

// GGUF writes the model to w as a GGUF file of version 3, for llama.cpp's "llama"
// architecture. Input and output embeddings are one tensor; llama.cpp uses it for
// both if the file has no "output.weight".
//
// Faults: Invalid if the encoding cannot represent the model's values or shapes,
// or for a reward model; Corrupt for values that are not finite. After an error,
// the bytes written so far are not a complete file.
func GGUF(w io.Writer, m Model, e Encoding) error {
	if err := m.check(); err != nil {
		return err
	}
	if m.RewardHead != nil {
		return fault.New(fault.Invalid,
			"export %s: llama.cpp does not support this kind of reward model: export it as safetensors", m.Name)
	}
	var h ggufHead
	m.describe(&h, e)
	for _, t := range m.Tensors {
		name, err := ggufName(t.Name)
		if err != nil {
			return err
		}
		as := encodingOf(t, e)
		if width := t.Shape[len(t.Shape)-1]; as == Q8 && width%block != 0 {
			return fault.New(fault.Invalid, "tensor %s has rows of %d values, q8_0 needs a multiple of %d: "+
				"export as f16 or bf16", t.Name, width, block)
		}
		h.tensor(name, t.Shape, as)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if err := h.write(out); err != nil {
		return err
	}
	for _, t := range m.Tensors {
		n, err := writeTensor(out, t, encodingOf(t, e), rowOrder(t.Name, m.Config))
		if err == nil {
			err = pad(out, n, ggufAlign)
		}
		if err != nil {
			return err
		}
	}
	return out.Flush()
}

// describe sets the metadata: general facts, the architecture and the tokenizer.
func (m *Model) describe(h *ggufHead, e Encoding) {
	c := m.Config
	h.text("general.architecture", "llama")
	h.text("general.type", "model")
	h.text("general.name", m.Name)
	for _, fact := range [][2]string{{"version", m.Digest}, {"description", m.Description}, {"license", m.License}} {
		if fact[1] != "" {
			h.text("general."+fact[0], fact[1])
		}
	}
	h.uint32("general.alignment", ggufAlign)
	h.uint32("general.file_type", e.ggufFile())
	if e == Q8 {
		h.uint32("general.quantization_version", 2)
	}

	h.uint32("llama.vocab_size", uint32(c.Vocab))
	h.uint32("llama.context_length", uint32(c.Context))
	h.uint32("llama.embedding_length", uint32(c.Width))
	h.uint32("llama.block_count", uint32(c.Layers))
	h.uint32("llama.feed_forward_length", uint32(c.Hidden))
	h.uint32("llama.attention.head_count", uint32(c.Heads))
	h.uint32("llama.attention.head_count_kv", uint32(c.Heads))
	h.uint32("llama.attention.key_length", uint32(c.HeadSize))
	h.uint32("llama.attention.value_length", uint32(c.HeadSize))
	h.float32("llama.attention.layer_norm_rms_epsilon", c.NormEpsilon)
	h.uint32("llama.rope.dimension_count", uint32(c.HeadSize))
	h.float32("llama.rope.freq_base", c.RopeBase)

	tokens := m.tokens()
	texts, kinds := make([]string, len(tokens)), make([]int32, len(tokens))
	for i, t := range tokens {
		texts[i], kinds[i] = t.text, t.kind
	}
	end := uint32(m.Tokenizer.EndOfText())
	h.text("tokenizer.ggml.model", "gpt2")
	h.text("tokenizer.ggml.pre", "gpt-2")
	h.texts("tokenizer.ggml.tokens", texts)
	h.int32s("tokenizer.ggml.token_type", kinds)
	h.texts("tokenizer.ggml.merges", m.merges())
	h.uint32("tokenizer.ggml.bos_token_id", end)
	h.uint32("tokenizer.ggml.eos_token_id", end)
	h.bool("tokenizer.ggml.add_bos_token", false)
	h.bool("tokenizer.ggml.add_eos_token", false)
	h.bool("tokenizer.ggml.add_space_prefix", false)
	h.text("tokenizer.chat_template", m.chatTemplate())
}

// ggufNames maps Hugging Face's names of a layer's parts to llama.cpp's.
var ggufNames = map[string]string{
	"input_layernorm":          "attn_norm",
	"post_attention_layernorm": "ffn_norm",
	"self_attn.q_proj":         "attn_q",
	"self_attn.k_proj":         "attn_k",
	"self_attn.v_proj":         "attn_v",
	"self_attn.o_proj":         "attn_output",
	"mlp.gate_proj":            "ffn_gate",
	"mlp.up_proj":              "ffn_up",
	"mlp.down_proj":            "ffn_down",
}

var layerName = regexp.MustCompile(`^model\.layers\.(\d+)\.([a-z_.]+)\.weight$`)

// ggufName returns llama.cpp's name of a tensor with the given Hugging Face name.
func ggufName(name string) (string, error) {
	switch name {
	case "model.embed_tokens.weight":
		return "token_embd.weight", nil
	case "model.norm.weight":
		return "output_norm.weight", nil
	}
	if part := layerName.FindStringSubmatch(name); part != nil {
		if known, ok := ggufNames[part[2]]; ok {
			return fmt.Sprintf("blk.%s.%s.weight", part[1], known), nil
		}
	}
	return "", fault.New(fault.Invalid, "tensor %s has no place in a GGUF file of architecture llama", name)
}

// rowOrder returns the function that maps a row of the tensor in GGUF to the row
// of the tensor here. llama.cpp rotates neighbouring dimensions of queries and
// keys together, Hugging Face dimensions i and i + half of a head: row 2i of a
// head in GGUF is row i here, and row 2i+1 is row i + half.
func rowOrder(name string, c model.Config) func(int) int {
	if !strings.HasSuffix(name, ".q_proj.weight") && !strings.HasSuffix(name, ".k_proj.weight") {
		return inOrder
	}
	return func(row int) int {
		head, within := row/c.HeadSize, row%c.HeadSize
		return head*c.HeadSize + within%2*c.HeadSize/2 + within/2
	}
}
