// Package schedule decides which shards may be dispatched, and remembers which
// are.
//
//	planned ──Pick──▶ in flight (chunks) ──done──▶ gone
//	                     └──lost──▶ in flight again, next generation
//
// A candidate is dispatched when every constraint admits it; constraints may
// leave gaps, so dispatch is not contiguous in general. Chunks keep what was
// sent as ranges, so that a run's document stays small. The package is pure.
package schedule

import (
	"encoding/json"
	"sort"
	"time"

	"rollout/shared/engine/interval"
)

// MinWindow is how many shards may be in flight at least.
const MinWindow = 256

// maxBuffered is the number of done shards above the frontier from which the
// window shrinks, and maxRanges that of their ranges: both bound what the
// run's document and the finalizer have to keep.
const (
	maxBuffered = 4096
	maxRanges   = 128
)

// Window is how many shards of a run may be in flight: MinWindow, or four
// times what the pool can hold at once; smaller, down to 1, when much is done
// above the frontier (one slow shard must not make the done set grow without
// bound).
func Window(poolShards, buffered, ranges int) int {
	w := max(MinWindow, 4*poolShards)
	if buffered > maxBuffered || ranges > maxRanges {
		w = max(1, w/8)
	}
	return w
}

// Candidate is a shard that might be dispatched, with the attributes of its
// cut-table row.
type Candidate struct {
	Shard                       int
	Group, Chain, Variant, Role uint32
}

// Constraint admits candidates. Admit may count what it admitted: it is asked
// once a candidate, in order, and only when all constraints before it agreed.
type Constraint interface {
	Admit(c Candidate) bool
}

// Cap admits candidates while fewer than Max shards are in flight.
type Cap struct{ InFlight, Max int }

// Admit counts the candidate in.
func (c *Cap) Admit(Candidate) bool {
	if c.InFlight >= c.Max {
		return false
	}
	c.InFlight++
	return true
}

// Pick returns the shards among [next, planned) that all constraints admit,
// looking no further than the first refusal of a Cap: at most limit of them.
func Pick(next, planned, limit int, attrs func(n int) Candidate, cs ...Constraint) []interval.Range {
	var out interval.Set
	for n := next; n < planned && limit > 0; n++ {
		c := Candidate{Shard: n}
		if attrs != nil {
			c = attrs(n)
		}
		ok, full := admit(c, cs)
		if full {
			break
		}
		if ok {
			out.Add(n)
			limit--
		}
	}
	return out.Ranges()
}

func admit(c Candidate, cs []Constraint) (ok, full bool) {
	for _, k := range cs {
		if !k.Admit(c) {
			_, isCap := k.(*Cap)
			return false, isCap
		}
	}
	return true, false
}

// Chunk is a range of shards that was sent with one generation. The
// generation counts how often a shard was sent, from 0; it paces looking
// again and is no failure count.
type Chunk struct {
	interval.Range
	Generation int
	SentAt     time.Time
}

// MarshalJSON writes [lo,hi,generation,sent in ms].
func (c Chunk) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]int64{int64(c.Lo), int64(c.Hi), int64(c.Generation), c.SentAt.UnixMilli()})
}

// UnmarshalJSON reads [lo,hi,generation,sent in ms].
func (c *Chunk) UnmarshalJSON(b []byte) error {
	var v [4]int64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*c = Chunk{interval.Range{Lo: int(v[0]), Hi: int(v[1])}, int(v[2]), time.UnixMilli(v[3]).UTC()}
	return nil
}

// Back-off of looking again at a chunk: 5 s, doubling a generation, to 5 min.
const (
	firstLook = 5 * time.Second
	lastLook  = 5 * time.Minute
)

// LookAfter is how old a chunk of the generation must be before reclaim may
// take its silence for a loss.
func LookAfter(generation int) time.Duration {
	if generation >= 6 {
		return lastLook
	}
	return firstLook << generation
}

// Due reports whether the chunk is old enough at now.
func (c Chunk) Due(now time.Time) bool { return now.Sub(c.SentAt) >= LookAfter(c.Generation) }

// InFlight is what was dispatched and is not known to be done. The zero value
// is empty. Chunks are disjoint and sorted.
type InFlight struct {
	Chunks []Chunk `json:"chunks"`
}

// mergeWithin is how far apart neighbouring chunks may have been sent and
// still become one.
const mergeWithin = time.Second

// Sent records that r was sent. Whatever was known of those shards is
// replaced.
func (f *InFlight) Sent(r interval.Range, generation int, now time.Time) {
	f.remove(r)
	i := sort.Search(len(f.Chunks), func(k int) bool { return f.Chunks[k].Lo >= r.Hi })
	f.Chunks = append(f.Chunks[:i], append([]Chunk{{r, generation, now}}, f.Chunks[i:]...)...)
	f.merge()
}

// Done forgets shard n.
func (f *InFlight) Done(n int) { f.remove(interval.Range{Lo: n, Hi: n + 1}) }

// Generation returns the generation in which n is in flight.
func (f *InFlight) Generation(n int) (int, bool) {
	i := sort.Search(len(f.Chunks), func(k int) bool { return f.Chunks[k].Hi > n })
	if i < len(f.Chunks) && f.Chunks[i].Lo <= n {
		return f.Chunks[i].Generation, true
	}
	return 0, false
}

// Len returns how many shards are in flight.
func (f *InFlight) Len() int {
	n := 0
	for _, c := range f.Chunks {
		n += c.Len()
	}
	return n
}

func (f *InFlight) remove(r interval.Range) {
	out := f.Chunks[:0:0]
	for _, c := range f.Chunks {
		if c.Hi <= r.Lo || c.Lo >= r.Hi {
			out = append(out, c)
			continue
		}
		if c.Lo < r.Lo {
			left := c
			left.Hi = r.Lo
			out = append(out, left)
		}
		if c.Hi > r.Hi {
			right := c
			right.Lo = r.Hi
			out = append(out, right)
		}
	}
	f.Chunks = out
}

func (f *InFlight) merge() {
	out := f.Chunks[:0]
	for _, c := range f.Chunks {
		if n := len(out); n > 0 && out[n-1].Hi == c.Lo && out[n-1].Generation == c.Generation {
			if d := c.SentAt.Sub(out[n-1].SentAt); d.Abs() <= mergeWithin {
				out[n-1].Hi = c.Hi
				if d > 0 {
					out[n-1].SentAt = c.SentAt
				}
				continue
			}
		}
		out = append(out, c)
	}
	f.Chunks = out
}
