package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

func small(t testing.TB) (*model.Model, *tokenizer.Tokenizer) {
	t.Helper()
	tok, err := tokenizer.Train(slices.Values([]string{"the light of the world and the light of the sun"}), 270)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{
		Vocab: 270, Width: 8, Layers: 1, Heads: 1, HeadSize: 8, Hidden: 12, Context: 16, RopeBase: 10000, NormEpsilon: 1e-5,
	}, 7)
	if err != nil {
		t.Fatal(err)
	}
	return m, tok
}

func TestLoadReadsWhatPackReturned(t *testing.T) {
	t.Parallel()
	m, tok := small(t)
	// Tolerances are relative to the largest value of the tensor.
	for e, tolerance := range map[Encoding]float64{F32: 0, BF16: 1.0 / 256, I8: 1.0 / 254} {
		b, err := Pack("rollout/test", m, tok, e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Pack("rollout/test", m, tok, e)
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s: packing twice gives different bytes (%v)", e, err)
		}
		got, err := Load(b)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != "rollout/test" || got.Tokenizer.Hash() != tok.Hash() || got.Model.Config() != m.Config() ||
			len(got.Digest) != 64 || !got.ChatTurns {
			t.Errorf("%s: got %q, %s, %+v, digest %s, turns %v",
				e, got.Name, got.Tokenizer, got.Model.Config(), got.Digest, got.ChatTurns)
		}
		for i, want := range m.Tensors() {
			have := got.Model.Tensors()[i]
			most := 0.0
			for _, v := range want.Data {
				most = max(most, math.Abs(float64(v)))
			}
			for j, v := range have.Data {
				off := math.Abs(float64(v - want.Data[j]))
				if limit := tolerance * most; len(want.Shape) == 1 && off != 0 || off > limit {
					t.Fatalf("%s: %s[%d] is %g, want %g", e, want.Name, j, v, want.Data[j])
				}
			}
		}
		// Rounded values must not change when they are packed again.
		twice, err := Pack("rollout/test", got.Model, tok, e)
		if err != nil {
			t.Fatal(err)
		}
		if e != I8 && !bytes.Equal(twice, b) {
			t.Errorf("%s: packing the loaded model gives other bytes", e)
		}
	}
}

func TestQuantiseScalesTheLargestValueOfARowTo127(t *testing.T) {
	t.Parallel()
	numbers, scales := quantise([]float32{0, 127, -63.5, 1.5, 0, 0, 0, 0, -2, 2, 1, 0.001}, 4)
	want := []int8{0, 127, -64, 2, 0, 0, 0, 0, -127, 127, 64, 0}
	if !slices.EqualFunc(numbers, want, func(b byte, n int8) bool { return int8(b) == n }) {
		t.Errorf("numbers %v, want %v", numbers, want)
	}
	if want := []float32{1, 0, 2.0 / 127}; !slices.Equal(scales, want) {
		t.Errorf("factors %v, want %v", scales, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), 1, 20).Draw(t, "row")
		numbers, scales := quantise(row, len(row))
		for i, v := range row {
			if off := math.Abs(float64(float32(int8(numbers[i]))*scales[0] - v)); off > float64(scales[0])*0.5001 {
				t.Fatalf("%g became %d × %g", v, int8(numbers[i]), scales[0])
			}
		}
	})
}

// file returns a file with the given header and data.
func file(head string, data ...byte) []byte {
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), []byte(head), data)
}

func TestDamagedFilesAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty file", nil, "too short for a header"},
		{
			"header length beyond the end",
			binary.LittleEndian.AppendUint64(nil, 1<<62), "truncated or not in safetensors format",
		},
		{
			"header length above the limit",
			binary.LittleEndian.AppendUint64(nil, maxHead+1), "truncated or not in safetensors format",
		},
		{"invalid JSON", file(`{"a"`), "the header"},
		{"metadata that are not strings", file(`{"__metadata__":{"a":1}}`), "the metadata"},
		{
			"unknown field",
			file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, 0, 0, 0, 0), "unknown field",
		},
		{
			"unknown type",
			file(`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}`, make([]byte, 8)...), `"F64"`,
		},
		{
			"tensor beyond the end",
			file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 0, 0, 0, 0), "lies at bytes 0 to 8, of 4",
		},
		{
			"tensor that ends before it begins",
			file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 0, 0, 0, 0), "lies at bytes 4 to 0",
		},
		{
			"gap before a tensor",
			file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, make([]byte, 8)...), "lies at bytes 4 to 8",
		},
		{
			"overlapping tensors",
			file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},`+
				`"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "lies at bytes 0 to 4",
		},
		{
			"shape that overflows",
			file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}`, 0, 0, 0, 0),
			"do not hold the shape",
		},
		{
			"negative shape",
			file(`{"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "do not hold the shape",
		},
		{
			"half a number",
			file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}}`, 0, 0, 0, 0, 0), "5 bytes do not hold",
		},
		{
			"bytes at the end",
			file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 0, 0, 0, 0, 0), "1 bytes after",
		},
		{"I8 without factors", file(`{"a":{"dtype":"I8","shape":[1,1],"data_offsets":[0,1]}}`, 1), "1 rows but 0 factors"},
		{
			"factors without a tensor",
			file(`{"a.scale":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 0, 0, 0, 0), "not a tensor of type I8",
		},
	} {
		if _, err := Decode(c.b); fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestLoadRefusesFilesWithoutAValidModel(t *testing.T) {
	t.Parallel()
	m, tok := small(t)
	for _, c := range []struct {
		name   string
		change func(f *File)
		want   string
	}{
		{"other format", func(f *File) { f.Metadata["format"] = "pt" }, `format is "pt"`},
		{"no shape", func(f *File) { delete(f.Metadata, "config") }, "the shape of the model"},
		{"misspelt key in the shape", func(f *File) {
			f.Metadata["config"] = strings.Replace(f.Metadata["config"], "width", "witdh", 1)
		}, "witdh"},
		{"impossible shape", func(f *File) {
			f.Metadata["config"] = strings.Replace(f.Metadata["config"], `"layers":1`, `"layers":0`, 1)
		}, "layers is 0"},
		{"shape larger than the tensors", func(f *File) {
			f.Metadata["config"] = strings.Replace(f.Metadata["config"], `"width":8`, `"width":8000`, 1)
		}, "parameters for a model of"},
		{"context that needs too much memory", func(f *File) {
			f.Metadata["config"] = strings.Replace(f.Metadata["config"], `"context":16`, `"context":65536`, 1)
		}, "a context of 65536"},
		{"missing tensor", func(f *File) { f.Tensors = f.Tensors[1:] }, "parameters for a model of"},
		{"misnamed tensor", func(f *File) { f.Tensors[0].Name = "x" }, "model.embed_tokens.weight"},
		{"NaN in a tensor", func(f *File) { f.Tensors[0].Data[3] = float32(math.NaN()) }, "NaN"},
		{"no tokenizer", func(f *File) { f.Metadata["tokenizer"] = "" }, "tokenizer: line 1"},
		{"tokenizer larger than the model", func(f *File) {
			f.Metadata["tokenizer"] += "a b\nab c\nabc d\n"
		}, "the tokenizer has 273 tokens, the model 270"},
	} {
		b, err := Pack("rollout/test", m.Clone(), tok, F32)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		c.change(f)
		if b, err = f.Encode(F32); err != nil {
			t.Fatal(err)
		}
		if _, err = Load(b); fault.KindOf(err) != fault.Corrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestEncodeRefusesWrongShapesAndUnknownEncodings(t *testing.T) {
	t.Parallel()
	f := File{Tensors: []model.Tensor{{Name: "a", Shape: []int{2, 2}, Data: make([]float32, 3)}}}
	if _, err := f.Encode(F32); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "3 numbers") {
		t.Errorf("wrong shape: %v, want an Invalid fault", err)
	}
	if _, err := f.Encode("F64"); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "F64") {
		t.Errorf("unknown encoding: %v, want an Invalid fault", err)
	}
}

func FuzzLoad(f *testing.F) {
	m, tok := small(f)
	for _, e := range []Encoding{F32, BF16, I8} {
		b, err := Pack("rollout/test", m, tok, e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(file(`{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}`, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, err := Decode(b)
		if err != nil {
			if fault.KindOf(err) != fault.Corrupt {
				t.Fatalf("the fault is %s, want Corrupt: %v", fault.KindOf(err), err)
			}
			return
		}
		again, err := read.Encode(F32)
		if err != nil {
			t.Fatalf("encoding the decoded file: %v", err)
		}
		back, err := Decode(again)
		if err != nil || len(back.Tensors) != len(read.Tensors) {
			t.Fatalf("decoding the encoded file: %v, want the same %d tensors", err, len(read.Tensors))
		}
		if bundle, err := Load(b); err == nil {
			if _, err := json.Marshal(bundle.Model.Config()); err != nil {
				t.Fatal(err)
			}
		} else if fault.KindOf(err) != fault.Corrupt {
			t.Fatalf("the fault is %s, want Corrupt: %v", fault.KindOf(err), err)
		}
	})
}
