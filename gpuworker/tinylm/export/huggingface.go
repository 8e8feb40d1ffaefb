package export

import (
	"bytes"
	"encoding/json"
	"io"

	"rollout/gpuworker/tinylm/tokenizer"
)

// File is one file of a model's folder.
type File struct {
	Name  string // Example: "config.json"
	Write func(io.Writer) error
}

// HuggingFace lists the files of a folder that Hugging Face's libraries, vLLM
// and the like load a model from.
func HuggingFace(m Model, e Encoding) []File {
	return []File{
		{"config.json", func(w io.Writer) error { return writeJSON(w, m.config(e)) }},
		{"generation_config.json", func(w io.Writer) error {
			return writeJSON(w, map[string]any{"bos_token_id": m.Tokenizer.EndOfText(), "eos_token_id": m.Tokenizer.EndOfText()})
		}},
		{"model.safetensors", func(w io.Writer) error { return Safetensors(w, m, e) }},
		{"tokenizer.json", func(w io.Writer) error { return writeJSON(w, m.tokenizer()) }},
		{"tokenizer_config.json", func(w io.Writer) error { return writeJSON(w, m.tokenizerConfig()) }},
	}
}

// writeJSON writes v for people too: indented, and "<" as it is.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// config says what the tensors are, in the words of transformers' LlamaConfig.
func (m *Model) config(e Encoding) any {
	c := m.Config
	facts := map[string]any{
		"architectures":           []string{"LlamaForCausalLM"},
		"model_type":              "llama",
		"vocab_size":              c.Vocab,
		"hidden_size":             c.Width,
		"intermediate_size":       c.Hidden,
		"num_hidden_layers":       c.Layers,
		"num_attention_heads":     c.Heads,
		"num_key_value_heads":     c.Heads,
		"head_dim":                c.HeadSize,
		"hidden_act":              "silu",
		"max_position_embeddings": c.Context,
		"rms_norm_eps":            c.NormEpsilon,
		"rope_theta":              c.RopeBase,
		"attention_bias":          false,
		"mlp_bias":                false,
		"tie_word_embeddings":     true,
		"bos_token_id":            m.Tokenizer.EndOfText(),
		"eos_token_id":            m.Tokenizer.EndOfText(),
		"torch_dtype":             map[Encoding]string{F32: "float32", F16: "float16", BF16: "bfloat16"}[e],
	}
	if m.RewardHead != nil {
		facts["architectures"] = []string{"LlamaForSequenceClassification"}
		facts["id2label"] = map[string]string{"0": "score"}
		facts["label2id"] = map[string]int{"score": 0}
		// The score is that of the last token that is no padding: one that no
		// text ends with.
		facts["pad_token_id"], _ = m.Tokenizer.Special(tokenizer.System)
	}
	return facts
}

// object is a JSON object that keeps the order of its keys, which vocabularies
// are read in.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(m.key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// tokenizer is what the tokenizers library makes its own one of.
func (m *Model) tokenizer() any {
	var vocab object
	added := []any{}
	for id, t := range m.tokens() {
		vocab = append(vocab, member{t.text, id})
		if t.kind != tokenNormal {
			added = append(added, object{
				{"id", id}, {"content", t.text}, {"single_word", false}, {"lstrip", false},
				{"rstrip", false}, {"normalized", false}, {"special", true},
			})
		}
	}
	bytesAsRunes := object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}}
	return object{
		{"version", "1.0"},
		{"truncation", nil},
		{"padding", nil},
		{"added_tokens", added},
		{"normalizer", nil},
		{"pre_tokenizer", bytesAsRunes},
		{"post_processor", nil},
		{"decoder", bytesAsRunes},
		{"model", object{
			{"type", "BPE"}, {"dropout", nil}, {"unk_token", nil}, {"continuing_subword_prefix", nil},
			{"end_of_word_suffix", nil}, {"fuse_unk", false}, {"byte_fallback", false}, {"ignore_merges", false},
			{"vocab", vocab}, {"merges", m.merges()},
		}},
	}
}

func (m *Model) tokenizerConfig() any {
	return map[string]any{
		"tokenizer_class":              "PreTrainedTokenizerFast",
		"model_max_length":             m.Config.Context,
		"bos_token":                    tokenizer.EndOfText,
		"eos_token":                    tokenizer.EndOfText,
		"clean_up_tokenization_spaces": false,
		"chat_template":                m.chatTemplate(),
	}
}
