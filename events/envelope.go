package events

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// Bounds of a message.
const (
	MaxSize  = 64 << 10 // bytes, encoded
	MaxDepth = 16       // objects and lists within each other
	MaxHops  = 12       // events that each caused the next
)

const (
	specVersion = "1.0"
	contentType = "application/json"
)

// Type names a kind of payload and its version. Example:
// "rollout.shard.done.v1".
type Type string

// Meta is what a sender says about an event. Subject, Traceparent and Term may
// be empty.
type Meta struct {
	// ID is unique within Source. Encode derives one from the content if it
	// is empty; receivers must not rely on it to drop repetitions.
	ID string `json:"id"`
	// Source is who sends. Example: "rollout/plan".
	Source string `json:"source"`
	// Subject is what the event is about. Example: a run id.
	Subject string `json:"subject,omitempty"`
	// Time is when it was sent, in UTC.
	Time time.Time `json:"time"`
	// Hops counts the events that led to this one. Workers, timers and users
	// start at 0; functions pass on what Next returns.
	Hops int `json:"hops"`
	// Traceparent is W3C trace context. It travels here and in no header,
	// because clouds stop chains that carry theirs.
	Traceparent string `json:"traceparent,omitempty"`
	// Term is the number of the lease under which it was sent; a CloudEvents
	// integer has 31 bits.
	Term uint64 `json:"term,omitempty"`
}

// Envelope is an event as it travels: CloudEvents 1.0 with the extensions
// hops, traceparent and term.
type Envelope struct {
	SpecVersion string `json:"specversion"`
	Type        Type   `json:"type"`
	Meta
	DataContentType string          `json:"datacontenttype,omitempty"`
	DataSchema      string          `json:"dataschema,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// Next returns the Meta of an event that this one causes: one hop further, in
// the same trace and term, with ID, Source, Subject and Time left to fill in.
// After MaxHops it is ErrTooManyHops: functions are feeding themselves.
func (e Envelope) Next() (Meta, error) {
	if e.Hops >= MaxHops {
		return Meta{}, fmt.Errorf("%w: %s %s has come %d hops", ErrTooManyHops, e.Type, e.ID, e.Hops)
	}
	return Meta{Hops: e.Hops + 1, Traceparent: e.Traceparent, Term: e.Term}, nil
}

// check returns the first reason why the attributes are not a message's.
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
		return fmt.Errorf("traceparent %.64q is no W3C trace context", m.Traceparent)
	case m.Term > math.MaxInt32:
		return fmt.Errorf("term %d has more than 31 bits", m.Term)
	}
	return nil
}

// isJSON reports whether a content type is JSON; none stands for it.
func isJSON(t string) bool {
	t, _, _ = strings.Cut(t, ";")
	t = strings.TrimSpace(t)
	return t == "" || strings.EqualFold(t, contentType)
}
