package schedule

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"time"

	"rollout/shared/core/interval"
)

// InFlight holds the shards that were sent and are not known to be done. The zero
// value is empty. Chunks are disjoint and sorted; the methods change them in place.
type InFlight struct{ Chunks []Chunk }

// MarkSent records that the ranges were sent, and replaces earlier records of those
// shards. A send shortly after another one of the same generation is recorded with
// the time of that one: the backoff need not distinguish them, and the document stays
// small.
func (f *InFlight) MarkSent(generation int, now time.Time, ranges ...interval.Range) {
	at := now
	shortly := lossCheckDelay(generation) / 8
	for _, c := range f.Chunks {
		if c.Generation != generation {
			continue
		}
		if now.Sub(c.SentAt) <= shortly && c.SentAt.Before(at) {
			at = c.SentAt
		}
	}
	for _, r := range ranges {
		i := f.remove(r)
		f.Chunks = slices.Insert(f.Chunks, i, Chunk{r, generation, at})
		if i+1 < len(f.Chunks) {
			f.join(i)
		}
		if i > 0 {
			f.join(i - 1)
		}
	}
}

// mergeFrom is from how many chunks on MergeDue merges: fewer are small enough.
const mergeFrom = 32

// MergeDue merges the chunks that are due at now, if there are many. It gives all
// due chunks of a generation the time of the youngest of them; for how long a chunk
// has been due makes no difference.
func (f *InFlight) MergeDue(now time.Time) {
	if len(f.Chunks) < mergeFrom {
		return
	}
	youngest := map[int]time.Time{}
	for _, c := range f.Chunks {
		if c.Due(now) && c.SentAt.After(youngest[c.Generation]) {
			youngest[c.Generation] = c.SentAt
		}
	}
	if len(youngest) == 0 {
		return
	}
	for i, c := range f.Chunks {
		if c.Due(now) {
			f.Chunks[i].SentAt = youngest[c.Generation]
		}
	}
	for i := len(f.Chunks) - 2; i >= 0; i-- {
		f.join(i)
	}
}

// MarkDone removes shard n.
func (f *InFlight) MarkDone(n int) { f.remove(interval.Range{Lo: n, Hi: n + 1}) }

// Generation returns the generation with which n is in flight, and false if it is
// not in flight.
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

// Clone returns an independent copy.
func (f InFlight) Clone() InFlight { return InFlight{slices.Clone(f.Chunks)} }

// remove removes the shards of r, and returns the index for a new chunk of r.
func (f *InFlight) remove(r interval.Range) int {
	i := sort.Search(len(f.Chunks), func(k int) bool { return f.Chunks[k].Hi > r.Lo })
	j := sort.Search(len(f.Chunks), func(k int) bool { return f.Chunks[k].Lo >= r.Hi })
	if i >= j {
		return i
	}
	var rest []Chunk // the parts of chunks outside r
	if c := f.Chunks[i]; c.Lo < r.Lo {
		c.Hi = r.Lo
		rest = append(rest, c)
	}
	at := i + len(rest)
	if c := f.Chunks[j-1]; c.Hi > r.Hi {
		c.Lo = r.Hi
		rest = append(rest, c)
	}
	f.Chunks = slices.Replace(f.Chunks, i, j, rest...)
	return at
}

// join merges chunks i and i+1 if they touch and have one generation and time.
func (f *InFlight) join(i int) {
	a, b := f.Chunks[i], f.Chunks[i+1]
	if a.Hi == b.Lo && a.Generation == b.Generation && a.SentAt.Equal(b.SentAt) {
		f.Chunks[i].Hi = b.Hi
		f.Chunks = slices.Delete(f.Chunks, i+1, i+2)
	}
}

// batch identifies the shards that were sent with one generation at one time.
type batch struct {
	generation int
	at         int64 // ms
}

// MarshalJSON writes [[generation,sent in ms,gap,length,gap,length,…],…], with the
// shards of each batch in the form of an interval.Set.
func (f InFlight) MarshalJSON() ([]byte, error) {
	sets := map[batch]*interval.Set{}
	var order []batch
	for _, c := range f.Chunks {
		b := batch{c.Generation, c.SentAt.UnixMilli()}
		if sets[b] == nil {
			sets[b] = &interval.Set{}
			order = append(order, b)
		}
		sets[b].AddRange(c.Range)
	}
	out := make([][]int64, 0, len(order))
	for _, b := range order {
		row := []int64{int64(b.generation), b.at}
		at := 0
		for _, r := range sets[b].Ranges() {
			row = append(row, int64(r.Lo-at), int64(r.Len()))
			at = r.Hi
		}
		out = append(out, row)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *InFlight) UnmarshalJSON(b []byte) error {
	var rows [][]int64
	if err := json.Unmarshal(b, &rows); err != nil {
		return err
	}
	var out []Chunk
	for _, row := range rows {
		if len(row) < 4 || row[0] < 0 {
			return fmt.Errorf("in flight: %v is not a batch of sent shards", row)
		}
		gaps := make([]int, 0, len(row)-2)
		for _, v := range row[2:] {
			gaps = append(gaps, int(v))
		}
		rs, err := interval.FromGaps(gaps)
		if err != nil {
			return fmt.Errorf("in flight: %w", err)
		}
		for _, r := range rs {
			out = append(out, Chunk{r, int(row[0]), time.UnixMilli(row[1]).UTC()})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Lo < out[j].Lo })
	for i := 1; i < len(out); i++ {
		if out[i].Lo < out[i-1].Hi {
			return fmt.Errorf("in flight: shard %d is in two batches", out[i].Lo)
		}
	}
	f.Chunks = out
	return nil
}
