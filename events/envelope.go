package events

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// Bounds of an event.
const (
	MaxSize  = 64 << 10 // bytes, encoded
	MaxDepth = 16       // of nested objects and lists
	MaxHops  = 12       // length of a chain of events, each caused by the one before
)

const (
	specVersion = "1.0"
	contentType = "application/json"
)

// Type is the name of a payload type and its version. Example:
// "rollout.shard.done.v1".
type Type string

// Meta holds the attributes of an event that its sender chooses. Subject and
// Traceparent may be empty.
type Meta struct {
	// ID is unique within Source. If it is empty, Encode derives it from the
	// content. Receivers must not rely on it to drop repetitions.
	ID string `json:"id"`
	// Source names the sender. Example: "rollout/plan".
	Source string `json:"source"`
	// Subject names what the event is about. Example: a run id.
	Subject string `json:"subject,omitempty"`
	// Time is when the event was sent, in UTC.
	Time time.Time `json:"time"`
	// Hops is how many events led to this one. Workers, timers and users start
	// at 0; functions use the Meta that Next returns.
	Hops int `json:"hops"`
	// Traceparent is the W3C trace context. It travels here and not in a header,
	// because clouds stop chains of calls that carry their own trace header.
	Traceparent string `json:"traceparent,omitempty"`
	// Term is reserved: no sender sets it, and no receiver acts on it. It has 31
	// bits, as every CloudEvents integer.
	Term uint64 `json:"term,omitempty"`
	// Sequence orders the events of a subject, by the bytes of the text: the CloudEvents
	// extension of that name. Only events for people have one.
	Sequence string `json:"sequence,omitempty"`
}

// FormatSequence returns the Sequence of an event of that number.
func FormatSequence(n uint64) string { return fmt.Sprintf("%020d", n) }

// Envelope is the wire form of an event: CloudEvents 1.0 with the extensions
// hops, traceparent, term and sequence.
type Envelope struct {
	SpecVersion string `json:"specversion"`
	Type        Type   `json:"type"`
	Meta
	DataContentType string          `json:"datacontenttype,omitempty"`
	DataSchema      string          `json:"dataschema,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// Next returns the Meta of an event that this one causes: with one hop more, in the
// same trace, and with ID, Source, Subject and Time left to fill in. After MaxHops
// it fails with ErrTooManyHops: a cycle of functions must end.
func (e Envelope) Next() (Meta, error) {
	if e.Hops >= MaxHops {
		return Meta{}, fmt.Errorf("%w: %s %s is already %d hops from its origin", ErrTooManyHops, e.Type, e.ID, e.Hops)
	}
	return Meta{Hops: e.Hops + 1, Traceparent: e.Traceparent}, nil
}

// check returns the first reason why the attributes are invalid, or nil.
func (e Envelope) check() error {
	switch {
	case e.SpecVersion != specVersion:
		return fmt.Errorf("specversion %.64q is not %q", e.SpecVersion, specVersion)
	case !printable(string(e.Type), 1, 128):
		return fmt.Errorf("type %.64q is not 1 to 128 printable characters", string(e.Type))
	case !isJSON(e.DataContentType):
		return fmt.Errorf("datacontenttype %.64q is not %s", e.DataContentType, contentType)
	case len(e.Data) == 0:
		return fmt.Errorf("data is missing")
	}
	return e.Meta.check()
}

func (m Meta) check() error {
	switch {
	case !printable(m.ID, 1, 128):
		return fmt.Errorf("id %.64q is not 1 to 128 printable characters", m.ID)
	case !printable(m.Source, 1, 256):
		return fmt.Errorf("source %.64q is not 1 to 256 printable characters", m.Source)
	case len(m.Subject) > maxKey:
		return fmt.Errorf("subject has %d bytes, more than %d", len(m.Subject), maxKey)
	case m.Time.IsZero():
		return fmt.Errorf("time is missing")
	case m.Time.Year() < 1 || m.Time.Year() > 9999: // other years have no RFC 3339 form
		return fmt.Errorf("time is in the year %d", m.Time.Year())
	case m.Hops < 0:
		return fmt.Errorf("hops %d is negative", m.Hops)
	case m.Hops > MaxHops:
		return fmt.Errorf("%w: %d, more than %d", ErrTooManyHops, m.Hops, MaxHops)
	case m.Traceparent != "" && !printable(m.Traceparent, 55, 128):
		return fmt.Errorf("traceparent %.64q is not a W3C trace context", m.Traceparent)
	case m.Sequence != "" && !printable(m.Sequence, 1, 64):
		return fmt.Errorf("sequence %.64q is not 1 to 64 printable characters", m.Sequence)
	case m.Term > math.MaxInt32:
		return fmt.Errorf("term %d has more than 31 bits", m.Term)
	}
	return nil
}

// isJSON reports whether a content type is JSON, which is also the default.
func isJSON(t string) bool {
	t, _, _ = strings.Cut(t, ";")
	t = strings.TrimSpace(t)
	return t == "" || strings.EqualFold(t, contentType)
}
