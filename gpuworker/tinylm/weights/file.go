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

// File is the contents of a safetensors file.
type File struct {
	Metadata map[string]string
	Tensors  []model.Tensor // in the file's order
}

// The limits of a file.
const (
	maxHead    = 4 << 20 // bytes of the header, which includes the tokenizer
	maxTensors = 4096
	maxAxes    = 4
)

// entry describes a tensor in the header.
type entry struct {
	Dtype   Encoding  `json:"dtype"`
	Shape   []int     `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"` // first byte and end, from the header's end
}

const metadata = "__metadata__"

// Encode returns the file's bytes, with matrices in the given encoding. The same
// file always gives the same bytes. Encode returns an Invalid fault if a tensor's
// shape does not match its numbers, or if the file exceeds a limit.
func (f *File) Encode(e Encoding) ([]byte, error) {
	if e.size() == 0 {
		return nil, fault.New(fault.Invalid, "unknown encoding %q: use F32, BF16 or I8", e)
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
			return nil, fault.New(fault.Invalid, "tensor %s: %d numbers do not have the shape %v",
				t.Name, len(t.Data), t.Shape)
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
	b, err := json.Marshal(head) // sorts the keys of maps
	if err != nil {
		return nil, err
	}
	b = append(b, strings.Repeat(" ", -len(b)&7)...)
	if len(b) > maxHead || len(head)-1 > maxTensors {
		return nil, fault.New(fault.Invalid, "a header of %d bytes with %d tensors: the maximum is %d bytes and %d tensors",
			len(b), len(head)-1, maxHead, maxTensors)
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b, data), nil
}

// Decode reads a file's bytes. It returns a Corrupt fault if they are not a valid
// file, or truncated.
func Decode(b []byte) (*File, error) {
	if len(b) < 8 {
		return nil, fault.New(fault.Corrupt, "weights: a file of %d bytes is too short for a header", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHead || n > uint64(len(b)-8) {
		return nil, fault.New(fault.Corrupt, "weights: a header of %d bytes in a file of %d: "+
			"the file is truncated or not in safetensors format", n, len(b))
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
			return nil, fault.New(fault.Corrupt, "weights: tensor %s lies at bytes %d to %d, of %d, after one that ends at %d",
				t.name, t.Offsets[0], t.Offsets[1], len(data), end)
		}
		length := t.Offsets[1] - end
		numbers, ok := product(t.Shape)
		size := uint64(t.Dtype.size())
		if size == 0 || !ok || uint64(numbers) != length/size || length%size != 0 {
			return nil, fault.New(fault.Corrupt, "weights: tensor %s: %d bytes do not hold the shape %v of type %q",
				t.name, length, t.Shape, t.Dtype)
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
			return nil, fault.New(fault.Corrupt, "weights: tensor %s has %d rows but %d factors",
				t.Name, t.Shape[0], len(factors))
		}
		multiply(t.Data, factors)
		delete(scales, t.Name)
	}
	for name := range scales {
		return nil, fault.New(fault.Corrupt, "weights: row factors for %s, which is not a tensor of type I8", name)
	}
	return f, nil
}

type named struct {
	name string
	entry
}

// parseHead returns the metadata, and the tensors' entries in the order of their
// offsets.
func parseHead(b []byte) (*File, []named, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, nil, fault.WithKind(fault.Corrupt, err, "the header")
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
			return nil, nil, fault.WithKind(fault.Corrupt, err, "tensor %.100q in the header", name)
		}
		entries = append(entries, t)
	}
	slices.SortFunc(entries, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.Offsets[1], b.Offsets[1]),
			cmp.Compare(a.name, b.name))
	})
	return f, entries, nil
}

// product returns the number of values of a shape. ok is false if the shape is
// not positive or too large.
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
