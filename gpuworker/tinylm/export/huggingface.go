package export

import (
	"bytes"
	"encoding/json"
	"io"

	"rollout/gpuworker/tinylm/tokenizer"
)

// File is one file of a model's folder.
type File struct {
	Name  string                // Example: "config.json"
	Write func(io.Writer) error // writes the contents
}

// HuggingFace returns the files of a model's folder for Hugging Face's libraries
// and for software that reads their format, such as vLLM.
func HuggingFace(m Model, e Encoding) []File {
	return []File{
		{"config.json", func(w io.Writer) error { return writeJSON(w, m.config(e)) }},
		{"generation_config.json", func(w io.Writer) error {
			end := m.Tokenizer.EndOfText()
			return writeJSON(w, map[string]any{"bos_token_id": end, "eos_token_id": end})
		}},
		{"model.safetensors", func(w io.Writer) error { return Safetensors(w, m, e) }},
		{"tokenizer.json", func(w io.Writer) error { return writeJSON(w, m.tokenizer()) }},
		{"tokenizer_config.json", func(w io.Writer) error { return writeJSON(w, m.tokenizerConfig()) }},
	}
}

// writeJSON writes v as indented JSON, without escaping "<".
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// config returns the model's shape with the keys of transformers' LlamaConfig.
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
		// The score is computed at the last token that is not padding, so the
		// padding token must be one that never ends a text.
		facts["pad_token_id"], _ = m.Tokenizer.Special(tokenizer.System)
	}
	return facts
}

// object is a JSON object with ordered keys. Readers of vocabularies depend on
// the order.
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

// tokenizer returns the contents of tokenizer.json, as Hugging Face's tokenizers
// library reads it.
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
	byteLevel := object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}}
	return object{
		{"version", "1.0"},
		{"truncation", nil},
		{"padding", nil},
		{"added_tokens", added},
		{"normalizer", nil},
		{"pre_tokenizer", byteLevel},
		{"post_processor", nil},
		{"decoder", byteLevel},
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
