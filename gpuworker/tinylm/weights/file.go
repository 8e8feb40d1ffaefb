package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"rollout/gpuworker/tinylm/model"
	"rollout/shared/fault"
)

// File is what a safetensors file holds.
type File struct {
	Metadata map[string]string
	Tensors  []model.Tensor // in the file's order
}

// What a file may have at most.
const (
	maxHead    = 4 << 20 // bytes of the head: a tokenizer is in it
	maxTensors = 4096
	maxAxes    = 4
)

// entry is a tensor in the head.
type entry struct {
	Dtype   Encoding  `json:"dtype"`
	Shape   []int     `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"` // from the head's end
}

const metadata = "__metadata__"

// Encode returns the file's bytes, with matrices in the given encoding: the
// same file always gives the same bytes. It fails with Invalid for a tensor
// whose shape does not fit its numbers, or a file with too much.
func (f *File) Encode(e Encoding) ([]byte, error) {
	if e.size() == 0 {
		return nil, fault.New(fault.Invalid, "encoding %q: it is one of F32, BF16 and I8", e)
	}
	head := map[string]any{metadata: f.Metadata}
	if f.Metadata == nil {
		head[metadata] = map[string]string{}
	}
	var data []byte
	put := func(name string, e Encoding, shape []int, b []byte) {
		head[name] = entry{e, shape, [2]uint64{uint64(len(data)), uint64(len(data) + len(b))}}
		data = append(data, b...)
	}
	for _, t := range f.Tensors {
		if n, ok := product(t.Shape); !ok || n != len(t.Data) {
			return nil, fault.New(fault.Invalid, "tensor %s: %d numbers don't have the shape %v", t.Name, len(t.Data), t.Shape)
		}
		switch {
		case len(t.Shape) != 2 || e == F32:
			put(t.Name, F32, t.Shape, appendF32(nil, t.Data))
		case e == BF16:
			put(t.Name, BF16, t.Shape, appendBF16(nil, t.Data))
		default:
			numbers, scales := quantise(t.Data, t.Shape[1])
			put(t.Name, I8, t.Shape, numbers)
			put(scaleOf(t.Name), F32, t.Shape[:1], appendF32(nil, scales))
		}
	}
	b, err := json.Marshal(head) // of a map: its keys are sorted
	if err != nil {
		return nil, err
	}
	b = append(b, strings.Repeat(" ", -len(b)&7)...)
	if len(b) > maxHead || len(head)-1 > maxTensors {
		return nil, fault.New(fault.Invalid, "a head of %d bytes with %d tensors: at most %d with %d are supported", len(b), len(head)-1, maxHead, maxTensors)
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b, data), nil
}

// Decode reads a file. It fails with Corrupt if the bytes are no such file, or
// cut off.
func Decode(b []byte) (*File, error) {
	if len(b) < 8 {
		return nil, fault.New(fault.Corrupt, "weights: a file of %d bytes has no head", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHead || n > uint64(len(b)-8) {
		return nil, fault.New(fault.Corrupt, "weights: a head of %d bytes in a file of %d: it is cut off, or no safetensors file", n, len(b))
	}
	f, entries, err := parseHead(b[8 : 8+n])
	if err != nil {
		return nil, fault.Wrap(err, "weights")
	}
	data := b[8+n:]
	var end uint64
	scales := make(map[string][]float32)
	encoded := make(map[string]bool)
	for _, t := range entries {
		if t.Offsets[0] != end || t.Offsets[1] < end || t.Offsets[1] > uint64(len(data)) {
			return nil, fault.New(fault.Corrupt, "weights: tensor %s lies at bytes %d to %d, of %d, after one that ends at %d", t.name, t.Offsets[0], t.Offsets[1], len(data), end)
		}
		numbers, ok := product(t.Shape)
		if size := t.Dtype.size(); size == 0 || !ok || uint64(numbers) != (t.Offsets[1]-end)/uint64(size) || (t.Offsets[1]-end)%uint64(size) != 0 {
			return nil, fault.New(fault.Corrupt, "weights: tensor %s: %d bytes are no %v of %q", t.name, t.Offsets[1]-end, t.Shape, t.Dtype)
		}
		values := decode(t.Dtype, data[end:t.Offsets[1]])
		end = t.Offsets[1]
		if of, found := strings.CutSuffix(t.name, ".scale"); found {
			scales[of] = values
			continue
		}
		encoded[t.name] = t.Dtype == I8
		f.Tensors = append(f.Tensors, model.Tensor{Name: t.name, Shape: t.Shape, Data: values})
	}
	if end != uint64(len(data)) {
		return nil, fault.New(fault.Corrupt, "weights: %d bytes after the last tensor", uint64(len(data))-end)
	}
	for _, t := range f.Tensors {
		if !encoded[t.Name] {
			continue
		}
		factors := scales[t.Name]
		if len(factors) != t.Shape[0] {
			return nil, fault.New(fault.Corrupt, "weights: tensor %s has %d rows and %d factors for them", t.Name, t.Shape[0], len(factors))
		}
		multiply(t.Data, factors)
		delete(scales, t.Name)
	}
	for name := range scales {
		return nil, fault.New(fault.Corrupt, "weights: factors for the rows of %s, which is no tensor of type I8", name)
	}
	return f, nil
}

type named struct {
	name string
	entry
}

// parseHead returns the tensors in the order in which they lie.
func parseHead(b []byte) (*File, []named, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, nil, fault.WithKind(fault.Corrupt, err, "the head")
	}
	if len(raw) > maxTensors+1 {
		return nil, nil, fault.New(fault.Corrupt, "%d tensors: at most %d are supported", len(raw), maxTensors)
	}
	f := &File{Metadata: make(map[string]string)}
	var entries []named
	for name, value := range raw {
		if name == metadata {
			if err := json.Unmarshal(value, &f.Metadata); err != nil {
				return nil, nil, fault.WithKind(fault.Corrupt, err, "the metadata")
			}
			continue
		}
		t := named{name: name}
		d := json.NewDecoder(bytes.NewReader(value))
		d.DisallowUnknownFields()
		if err := d.Decode(&t.entry); err != nil {
			return nil, nil, fault.WithKind(fault.Corrupt, err, "tensor %.100q in the head", name)
		}
		entries = append(entries, t)
	}
	slices.SortFunc(entries, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.Offsets[1], b.Offsets[1]), cmp.Compare(a.name, b.name))
	})
	return f, entries, nil
}

// product is how many numbers a shape has; ok is false for one that is too
// large or negative.
func product(shape []int) (n int, ok bool) {
	if len(shape) == 0 || len(shape) > maxAxes {
		return 0, false
	}
	n = 1
	for _, s := range shape {
		if s < 1 || s > 1<<31-1 || n > (1<<31-1)/s {
			return 0, false
		}
		n *= s
	}
	return n, true
}
