package events

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Errors of Encode and Decode; test for them with errors.Is. All are permanent:
// move the message to the dead letters.
var (
	ErrMalformed   = errors.New("malformed event")
	ErrUnknownType = errors.New("unknown event type")
	ErrTooLarge    = errors.New("event too large")
	ErrTooManyHops = errors.New("too many hops")
)

// Payload is the content of an event: one of this package's structs, by value.
type Payload interface {
	// EventType returns the type that the envelope carries.
	EventType() Type
	// check returns the first reason why the payload is invalid, or nil.
	check() error
}

// Unknown is the payload of an event whose type this version does not know.
type Unknown struct{ Type Type }

// EventType returns the unknown type.
func (u Unknown) EventType() Type { return u.Type }

func (u Unknown) check() error { return fmt.Errorf("%w %.64q", ErrUnknownType, string(u.Type)) }

// payloadDecoder is a line of the table: a payload type and its decoder.
type payloadDecoder struct {
	zero Payload
	read func(data []byte) (Payload, error)
}

func decoderOf[P Payload]() payloadDecoder {
	return payloadDecoder{zero: *new(P), read: decode[P]}
}

func decode[P Payload](data []byte) (Payload, error) {
	var p P
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	return p, p.check()
}

// payloadDecoders lists every payload. To add one, write its struct, add its line
// here, add a golden file (go test ./events -add), and run go generate ./events.
var payloadDecoders = []payloadDecoder{
	decoderOf[ObjectCreated](),
	decoderOf[RunSubmitted](),
	decoderOf[RetryRequested](),
	decoderOf[BatchRequested](),
	decoderOf[PlanRange](),
	decoderOf[PlanAdvanced](),
	decoderOf[Work](),
	decoderOf[ShardDone](),
	decoderOf[ShardLost](),
	decoderOf[ShardReleased](),
	decoderOf[InputMissing](),
	decoderOf[ModelMissing](),
	decoderOf[ItemFailed](),
	decoderOf[InputChanged](),
	decoderOf[RequestsRefused](),
	decoderOf[Wakeup](),
	decoderOf[ControlChanged](),
	decoderOf[Finalize](),
	decoderOf[FinalizeSegment](),
	decoderOf[Finalized](),
	decoderOf[RunCompleted](),
	decoderOf[RunFailed](),
	decoderOf[RunStopped](),
	decoderOf[RunPaused](),
	decoderOf[BudgetLow](),
	decoderOf[CapacityMissing](),
	decoderOf[QuotaReached](),
	decoderOf[LaunchFailed](),
	decoderOf[BootFailed](),
	decoderOf[NotifyTest](),
}

var byType = func() map[Type]payloadDecoder {
	m := make(map[Type]payloadDecoder, len(payloadDecoders))
	for _, k := range payloadDecoders {
		m[k.zero.EventType()] = k
	}
	return m
}()

// Payloads returns the zero value of every payload that this version knows.
func Payloads() []Payload {
	ps := make([]Payload, len(payloadDecoders))
	for i, k := range payloadDecoders {
		ps[i] = k.zero
	}
	return ps
}

// Encode returns the payload as an event of at most MaxSize bytes. The same
// arguments give the same bytes. An invalid payload is ErrMalformed, one that is too
// long ErrTooLarge.
func Encode(p Payload, m Meta) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, p.EventType(), err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, p.EventType(), err)
	}
	m.Time = m.Time.UTC()
	if m.ID == "" {
		m.ID = contentID(p.EventType(), m, data)
	}
	e := Envelope{SpecVersion: specVersion, Type: p.EventType(), Meta: m, DataContentType: contentType, Data: data}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, e.Type, err)
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, e.Type, err)
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("%w: %s has %d bytes, more than %d", ErrTooLarge, e.Type, len(b), MaxSize)
	}
	return b, nil
}

// Decode reads one event and ignores unknown fields. With ErrUnknownType the
// envelope is valid and the payload is an Unknown. With any other error the payload
// is nil.
func Decode(b []byte) (Envelope, Payload, error) {
	e, err := open(b)
	if err != nil {
		return Envelope{}, nil, err
	}
	k, ok := byType[e.Type]
	if !ok {
		u := Unknown{e.Type}
		return e, u, u.check()
	}
	p, err := k.read(e.Data)
	if err != nil {
		return e, nil, fmt.Errorf("%w: %s: %w", ErrMalformed, e.Type, err)
	}
	return e, p, nil
}

// open reads the envelope, and does not decode its data.
func open(b []byte) (e Envelope, err error) {
	switch {
	case len(b) > MaxSize:
		return e, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, len(b), MaxSize)
	case !utf8.Valid(b):
		return e, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	case nestedDeeper(b, MaxDepth):
		return e, fmt.Errorf("%w: objects and lists are nested more than %d deep", ErrMalformed, MaxDepth)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := e.check(); err != nil {
		return e, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	e.Time = e.Time.UTC()
	return e, nil
}

// nestedDeeper reports whether objects and lists in the JSON are nested more than
// limit deep.
func nestedDeeper(b []byte, limit int) bool {
	depth, text := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// contentID derives an event's id from everything that distinguishes it.
func contentID(t Type, m Meta, data []byte) string {
	h := sha256.New()
	for _, part := range []string{m.Source, string(t), m.Subject, m.Time.Format(time.RFC3339Nano), strconv.Itoa(m.Hops)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
