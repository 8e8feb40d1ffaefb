package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"

	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// Kind is the kind of a frame.
type Kind uint8

// The kinds.
const (
	KindEnvelope Kind = iota + 1 // stage 0 to the leader, and the leader to the mesh
	KindResult                   // the leader to stage 0
	KindWorld                    // a block of a collective of all ranks
	KindMesh                     // a block of a collective of the mesh
)

// Header begins a frame. For blocks of collectives, Chunk counts the collectives of the
// group, Action is Noop, and Metadata is the number of bytes that follow.
type Header struct {
	Kind    Kind
	Action  pipeline.Action
	Version uint16
	pipeline.IDs
	Tensors         uint32
	metadata, specs uint32
}

const (
	headerSize = 4 + 1 + 1 + 2 + 3*8 + 3*4
	tagSize    = 8 + 8 + 2
	magic      = "RPP1"
)

// MaxBlock bounds a block of a collective, in bytes.
const MaxBlock = 64 << 20

func (h Header) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, byte(h.Kind), byte(h.Action))
	b = binary.LittleEndian.AppendUint16(b, h.Version)
	for _, v := range []int64{h.Call, h.Chunk, h.Epoch} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range []uint32{h.Tensors, h.metadata, h.specs} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// ReadHeader reads a header and checks its bounds. It is Corrupt if it has a wrong form; the
// errors of r are returned as they are.
func ReadHeader(r io.Reader) (Header, error) {
	var b [headerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return Header{}, err
	}
	h := Header{Kind: Kind(b[4]), Action: pipeline.Action(b[5]), Version: binary.LittleEndian.Uint16(b[6:])}
	h.Call = int64(binary.LittleEndian.Uint64(b[8:]))
	h.Chunk = int64(binary.LittleEndian.Uint64(b[16:]))
	h.Epoch = int64(binary.LittleEndian.Uint64(b[24:]))
	h.Tensors = binary.LittleEndian.Uint32(b[32:])
	h.metadata = binary.LittleEndian.Uint32(b[36:])
	h.specs = binary.LittleEndian.Uint32(b[40:])
	isBlock := h.Kind == KindWorld || h.Kind == KindMesh
	switch {
	case string(b[:4]) != magic:
		return Header{}, fault.New(fault.Corrupt, "a frame begins with %q, not %q", b[:4], magic)
	case h.Kind < KindEnvelope || h.Kind > KindMesh:
		return Header{}, fault.New(fault.Corrupt, "a frame of the kind %d: 1 to %d exist", h.Kind, KindMesh)
	case !h.Action.Valid():
		return Header{}, fault.New(fault.Corrupt, "a frame with the action %d: 0 to %d exist", h.Action, pipeline.Error)
	case isBlock && (h.metadata > MaxBlock || h.Tensors > 0 || h.specs > 0),
		!isBlock && (h.metadata > maxMetadata || h.Tensors > MaxTensors || h.specs > maxSpecs):
		return Header{}, fault.New(fault.Corrupt, "a frame with %d tensors, %d bytes of metadata and %d of specs: too much",
			h.Tensors, h.metadata, h.specs)
	}
	return h, nil
}

// Prepared is a message that can be written as a whole. Only Prepare makes one.
type Prepared struct {
	Header
	head    []byte // header, metadata and specs
	tags    [][]byte
	tensors [][]byte
}

// Prepare checks an envelope and makes everything that Write sends. It keeps the tensors'
// data. A fault is Invalid; nothing has been sent then.
func Prepare(e *Envelope, c Contract) (*Prepared, error) {
	if err := e.Validate(c); err != nil {
		return nil, fault.Wrap(err, "envelope")
	}
	return prepare(Header{Kind: KindEnvelope, Action: e.Action, IDs: e.IDs()}, e, e.Tensors, c)
}

// PrepareResult does for a result what Prepare does for an envelope.
func PrepareResult(r *Result, c Contract) (*Prepared, error) {
	if err := r.Validate(c); err != nil {
		return nil, fault.Wrap(err, "result")
	}
	return prepare(Header{Kind: KindResult, Action: pipeline.Infer, IDs: r.IDs()}, r, r.Tensors, c)
}

func prepare(h Header, meta any, tensors []Tensor, c Contract) (*Prepared, error) {
	metadata, err := json.Marshal(meta)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "serialize the metadata")
	}
	specs := make([]Spec, 0, len(tensors))
	p := &Prepared{}
	for _, t := range tensors {
		n, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		if n != len(t.Data) {
			return nil, fault.New(fault.Invalid, "the tensor %s has %d bytes: its shape %v needs %d", t.Key, len(t.Data),
				t.Shape, n)
		}
		specs = append(specs, t.Spec)
		p.tags = append(p.tags, tag(h.IDs, c.field(h.Kind, t.Key)))
		p.tensors = append(p.tensors, t.Data)
	}
	specBytes, err := json.Marshal(specs)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "serialize the tensor specs")
	}
	if len(metadata) > maxMetadata || len(specBytes) > maxSpecs || len(tensors) > MaxTensors {
		return nil, fault.New(fault.Invalid, "%d tensors, %d bytes of metadata and %d of specs: too much for a message",
			len(tensors), len(metadata), len(specBytes))
	}
	h.Version, h.Tensors = Version, uint32(len(tensors))
	h.metadata, h.specs = uint32(len(metadata)), uint32(len(specBytes))
	p.Header = h
	p.head = h.append(make([]byte, 0, headerSize+len(metadata)+len(specBytes)))
	p.head = append(append(p.head, metadata...), specBytes...)
	return p, nil
}

// tag returns what precedes a tensor.
func tag(ids pipeline.IDs, field int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(ids.Epoch))
	b = binary.LittleEndian.AppendUint64(b, uint64(ids.Call))
	return binary.LittleEndian.AppendUint16(b, uint16(field))
}

// WriteTo writes the message.
func (p *Prepared) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(p.head)
	total := int64(n)
	for i := 0; err == nil && i < len(p.tensors); i++ {
		for _, b := range [][]byte{p.tags[i], p.tensors[i]} {
			if err == nil {
				n, err = w.Write(b)
				total += int64(n)
			}
		}
	}
	return total, err
}

// ReadEnvelope reads what follows the header of an envelope. It does not validate it; see
// Envelope.Validate. It is Corrupt if it has a wrong form.
func ReadEnvelope(r io.Reader, h Header, c Contract) (*Envelope, error) {
	e := &Envelope{}
	tensors, err := readBody(r, h, KindEnvelope, e, c)
	if err != nil {
		return nil, fault.Wrap(err, "envelope")
	}
	e.Tensors = tensors
	if e.IDs() != h.IDs || e.Action != h.Action {
		return nil, fault.New(fault.Corrupt, "envelope: header and metadata differ: %v %+v and %v %+v",
			h.Action, h.IDs, e.Action, e.IDs())
	}
	return e, nil
}

// ReadResult does for a result what ReadEnvelope does for an envelope.
func ReadResult(r io.Reader, h Header, c Contract) (*Result, error) {
	out := &Result{}
	tensors, err := readBody(r, h, KindResult, out, c)
	if err != nil {
		return nil, fault.Wrap(err, "result")
	}
	out.Tensors = tensors
	if out.IDs() != h.IDs {
		return nil, fault.New(fault.Corrupt, "result: header and metadata differ: %+v and %+v", h.IDs, out.IDs())
	}
	return out, nil
}

func readBody(r io.Reader, h Header, kind Kind, meta any, c Contract) ([]Tensor, error) {
	if h.Kind != kind {
		return nil, fault.New(fault.Corrupt, "a frame of the kind %d: %d is expected", h.Kind, kind)
	}
	b := make([]byte, h.metadata+h.specs)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	var specs []Spec
	if err := errors.Join(strict(b[:h.metadata], meta), strict(b[h.metadata:], &specs)); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "metadata or tensor specs")
	}
	if len(specs) != int(h.Tensors) {
		return nil, fault.New(fault.Corrupt, "%d tensor specs: the header says %d", len(specs), h.Tensors)
	}
	tensors := make([]Tensor, 0, len(specs))
	var got [tagSize]byte
	for _, s := range specs {
		n, err := s.Bytes()
		if err != nil {
			return nil, fault.WithKind(fault.Corrupt, err, "tensor specs")
		}
		if _, err := io.ReadFull(r, got[:]); err != nil {
			return nil, err
		}
		if want := tag(h.IDs, c.field(kind, s.Key)); !bytes.Equal(want, got[:]) {
			return nil, fault.New(fault.Corrupt, "the tensor %.40q has the tag %x: %x is expected", s.Key, got, want)
		}
		data, err := readN(r, n)
		if err != nil {
			return nil, err
		}
		tensors = append(tensors, Tensor{s, data})
	}
	return tensors, nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one value")
	}
	return nil
}

// trusted is how many bytes are allocated before any of them has arrived.
const trusted = 32 << 20

func readN(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, min(n, trusted))
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(n, 2*cap(b))), b...)
		}
		next := b[len(b):min(n, cap(b))]
		if _, err := io.ReadFull(r, next); err != nil {
			return nil, err
		}
		b = b[:len(b)+len(next)]
	}
	return b, nil
}

// AppendBlock appends the frame of a collective's block. number counts the group's collectives.
func AppendBlock(b []byte, kind Kind, number int64, data []byte) []byte {
	h := Header{Kind: kind, Version: Version, IDs: pipeline.IDs{Chunk: number}, metadata: uint32(len(data))}
	return append(h.append(b), data...)
}

// ReadBlock reads what follows the header of a block into a slice that may be buf's.
func ReadBlock(r io.Reader, h Header, buf []byte) ([]byte, error) {
	if n := int(h.metadata); n <= cap(buf) {
		buf = buf[:n]
		_, err := io.ReadFull(r, buf)
		return buf, err
	}
	return readN(r, int(h.metadata))
}
