package export

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

// sample returns a small model with two merges. Each weight depends on its tensor
// and position.
func sample(t *testing.T) Model {
	t.Helper()
	tok, err := tokenizer.New([]tokenizer.Merge{{Left: 't', Right: 'h'}, {Left: ' ', Right: 256}})
	if err != nil {
		t.Fatal(err)
	}
	c := model.Config{
		Vocab: tok.Vocab() + 1, Width: 32, Layers: 1, Heads: 2, HeadSize: 16, Hidden: 64, Context: 16,
		RopeBase: 10_000, NormEpsilon: 1e-5,
	}
	m, err := model.New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range m.Tensors() {
		for j := range tensor.Data {
			tensor.Data[j] = float32(i) + float32(j)/8192
		}
	}
	return Model{
		Name: "sample", Description: "for a test", License: "Apache-2.0", Digest: "abc",
		Config: c, Tensors: m.Tensors(), Tokenizer: tok,
	}
}

func TestFilesHaveTheGoldenDigests(t *testing.T) {
	t.Parallel()
	m := sample(t)
	files := map[string]func(io.Writer) error{}
	for _, e := range []Encoding{F32, F16, BF16, Q8} {
		files["gguf "+e.String()] = func(w io.Writer) error { return GGUF(w, m, e) }
	}
	for _, e := range []Encoding{F32, F16, BF16} {
		for _, f := range HuggingFace(m, e) {
			files[f.Name+" "+e.String()] = f.Write
		}
	}
	want := map[string]string{
		"config.json bf16":            "670c4e483b80e0b2",
		"config.json f16":             "0f52f1b6fbe973cb",
		"config.json f32":             "19dda51d06c8c264",
		"generation_config.json bf16": "d2e9260ef44fe61e",
		"generation_config.json f16":  "d2e9260ef44fe61e",
		"generation_config.json f32":  "d2e9260ef44fe61e",
		"gguf bf16":                   "59fca7c31f3add40",
		"gguf f16":                    "c865fd7f442d5686",
		"gguf f32":                    "eb64a63c93e4ca28",
		"gguf q8_0":                   "68c0e16a8cd1ebd9",
		"model.safetensors bf16":      "d8f3115919b83e7e",
		"model.safetensors f16":       "d9df0d5105a4a2c7",
		"model.safetensors f32":       "092f68d21dbf8dfc",
		"tokenizer.json bf16":         "c319451005f5e02a",
		"tokenizer.json f16":          "c319451005f5e02a",
		"tokenizer.json f32":          "c319451005f5e02a",
		"tokenizer_config.json bf16":  "4036e9381d0b34b8",
		"tokenizer_config.json f16":   "4036e9381d0b34b8",
		"tokenizer_config.json f32":   "4036e9381d0b34b8",
	}
	for name, write := range files {
		var a, b bytes.Buffer
		if err := write(&a); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := write(&b); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s differs when it is written twice (%v)", name, err)
		}
		sum := blake3.Sum256(a.Bytes())
		if got := hex.EncodeToString(sum[:8]); got != want[name] {
			t.Errorf("%q has the digest %q, want %q", name, got, want[name])
		}
	}
}

func TestSafetensorsHoldTheTensorsInOrder(t *testing.T) {
	t.Parallel()
	m := sample(t)
	var b bytes.Buffer
	if err := Safetensors(&b, m, F32); err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b.Bytes())
	head, data := b.Bytes()[8:8+n], b.Bytes()[8+n:]
	var entries map[string]struct {
		Dtype   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(head, &entries); err != nil {
		t.Fatal(err)
	}
	if n%8 != 0 || len(entries) != len(m.Tensors)+1 {
		t.Errorf("the header has %d bytes and %d entries, want a multiple of 8 and %d", n, len(entries), len(m.Tensors)+1)
	}
	at := 0
	for _, tensor := range m.Tensors {
		e := entries[tensor.Name]
		offsets := [2]int{at, at + 4*len(tensor.Data)}
		if e.Dtype != "F32" || fmt.Sprint(e.Shape) != fmt.Sprint(tensor.Shape) || e.Offsets != offsets {
			t.Fatalf("the header lists %s as %+v, want F32 with shape %v at %v", tensor.Name, e, tensor.Shape, offsets)
		}
		for i, v := range tensor.Data {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(data[at+4*i:])); got != v {
				t.Fatalf("%s has %g at %d, want %g", tensor.Name, got, i, v)
			}
		}
		at = e.Offsets[1]
	}
	if at != len(data) {
		t.Errorf("%d bytes after the last tensor", len(data)-at)
	}
}

func TestQueriesAndKeysAreInterleavedForLlama(t *testing.T) {
	t.Parallel()
	c := model.Config{HeadSize: 8}
	var got []int
	order := rowOrder("model.layers.3.self_attn.k_proj.weight", c)
	for i := range 16 {
		got = append(got, order(i))
	}
	if want := "[0 4 1 5 2 6 3 7 8 12 9 13 10 14 11 15]"; fmt.Sprint(got) != want {
		t.Errorf("rows %v, want %s", got, want)
	}
	if v := rowOrder("model.layers.3.self_attn.v_proj.weight", c)(5); v != 5 {
		t.Errorf("row 5 of the values is row %d, want 5: values are not interleaved", v)
	}
}

func TestExportRefusesUnsupportedModels(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		change func(*Model)
		e      Encoding
		kind   fault.Kind
		want   string
	}{
		"reward model": {
			func(m *Model) { m.RewardHead = make([]float32, 32) }, F32,
			fault.Invalid, "export it as safetensors",
		},
		"unknown tensor": {
			func(m *Model) { m.Tensors[3].Name = "lm_head.weight" }, F32,
			fault.Invalid, "tensor lm_head.weight has no place",
		},
		"narrow tensor as q8_0": {
			func(m *Model) { m.Tensors[1].Shape = []int{8, 4} }, Q8,
			fault.Invalid, "needs a multiple of 32",
		},
		"value too large for f16": {
			func(m *Model) { m.Tensors[2].Data[33] = 1e6 }, F16,
			fault.Invalid, "self_attn.q_proj.weight, row 1: 1e+06 is too large for f16",
		},
		"NaN": {
			func(m *Model) { m.Tensors[2].Data[33] = nan }, F32,
			fault.Corrupt, "NaN in row 1, column 1",
		},
		"shape that does not match the values": {
			func(m *Model) { m.Tensors[2].Shape[0]++ }, F32,
			fault.Corrupt, "its shape is [33 32]",
		},
		"tokenizer with more tokens than the model": {
			func(m *Model) { m.Config.Vocab = 100 }, F32,
			fault.Invalid, "the tokenizer has 262 tokens, the model only 100",
		},
	} {
		m := sample(t)
		c.change(&m)
		err := GGUF(io.Discard, m, c.e)
		if !fault.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %s: %q", name, err, c.kind, c.want)
		}
	}
	if err := Safetensors(io.Discard, sample(t), Q8); !fault.Is(err, fault.Invalid) {
		t.Errorf("safetensors as q8_0: %v", err)
	}
}

// limitedWriter fails after so many bytes, like a full disk.
type limitedWriter int

func (f *limitedWriter) Write(b []byte) (int, error) {
	if *f -= limitedWriter(len(b)); *f < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestFailedWritesAreReturned(t *testing.T) {
	t.Parallel()
	m := sample(t)
	for _, room := range []limitedWriter{0, 5_000, 70_000} {
		a, b := room, room
		if err := GGUF(&a, m, F32); err == nil {
			t.Errorf("GGUF returns no error with room for only %d bytes", room)
		}
		if err := Safetensors(&b, m, F32); err == nil && room < 70_000 {
			t.Errorf("Safetensors returns no error with room for only %d bytes", room)
		}
	}
}
