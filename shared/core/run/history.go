package run

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"
)

// maxPoints bounds the points of a History. One that is full keeps every other point.
const maxPoints = 120

// History is how a run went on, for plots: a point for each time in which something was saved. It
// covers the whole life of the run with ever longer times between points, in about 2 KiB of the
// state, and is never a reason to save one.
type History struct {
	// Every is the time of a point in seconds: of several in one, the last stands.
	Every  int
	Points []Point
}

// Point is how far a run was at a time. What a child run keeps from its parent is not in it: that is
// not its work.
type Point struct {
	At       int // seconds since the run's first dispatch
	Done     int // items with an answer, so far
	Failed   int // items without an answer for good, so far
	InFlight int // requests at that time, by the workers' heartbeats
	Tokens   int64
}

// IsZero reports whether nothing has been recorded.
func (h History) IsZero() bool { return len(h.Points) == 0 }

// With returns the history with a point that is not before the last one.
func (h History) With(p Point) History {
	next := History{Every: max(1, h.Every), Points: slices.Clone(h.Points)}
	next.Points = next.thin(append(next.Points, p))
	for len(next.Points) > maxPoints {
		next.Every *= 2
		next.Points = next.thin(next.Points)
	}
	return next
}

// thin keeps the last point of each time.
func (h History) thin(points []Point) []Point {
	out := points[:0]
	for i, p := range points {
		if i+1 == len(points) || points[i+1].At/h.Every != p.At/h.Every {
			out = append(out, p)
		}
	}
	return out
}

// savedHistory is the JSON form: the differences of consecutive points as varints, in base64.
type savedHistory struct {
	Every  int    `json:"every"`
	Points string `json:"points"`
}

// MarshalJSON encodes the history in about 12 bytes a point.
func (h History) MarshalJSON() ([]byte, error) {
	var b []byte
	var last Point
	for _, p := range h.Points {
		for _, n := range []int64{int64(p.At - last.At), int64(p.Done - last.Done), int64(p.Failed - last.Failed),
			int64(p.InFlight), p.Tokens - last.Tokens} {
			b = binary.AppendVarint(b, n)
		}
		last = p
	}
	return json.Marshal(savedHistory{h.Every, base64.RawStdEncoding.EncodeToString(b)})
}

// UnmarshalJSON decodes a history. One that can't be read is empty: it decides nothing.
func (h *History) UnmarshalJSON(raw []byte) error {
	*h = History{}
	var s savedHistory
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	b, err := base64.RawStdEncoding.DecodeString(s.Points)
	if err != nil || s.Every < 1 {
		return nil
	}
	out := History{Every: s.Every}
	var last Point
	for len(b) > 0 && len(out.Points) < maxPoints {
		var v [5]int64
		for i := range v {
			n, size := binary.Varint(b)
			if size <= 0 {
				return nil
			}
			v[i], b = n, b[size:]
		}
		last = Point{last.At + int(v[0]), last.Done + int(v[1]), last.Failed + int(v[2]), int(v[3]), last.Tokens + v[4]}
		out.Points = append(out.Points, last)
	}
	*h = out
	return nil
}

// recordHistory adds how far the run is now. What it keeps counts from the end of planning on.
func (d *decider) recordHistory() {
	if d.StartedAt.IsZero() || d.now.Before(d.StartedAt) {
		return
	}
	p := Point{At: int(d.now.Sub(d.StartedAt) / time.Second), Done: d.Counts.OK, Failed: d.Counts.Failed,
		InFlight: d.world.InFlight, Tokens: d.Counts.CompletionTokens}
	if kept := d.world.KeptCounts; d.Complete {
		p.Done, p.Failed, p.Tokens = p.Done-kept.OK, p.Failed-kept.Failed, p.Tokens-kept.CompletionTokens
	}
	if n := len(d.History.Points); n > 0 {
		p.At = max(p.At, d.History.Points[n-1].At) // the clocks of two processes may differ
	}
	d.History = d.History.With(p)
}
