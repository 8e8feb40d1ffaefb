package schedule

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
)

var start = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// sent is the last send of a shard.
type sent struct {
	generation int
	at         time.Time
}

// TestInFlightBehavesAsMap compares InFlight with a map from a shard to its last
// send. InFlight may record a slightly earlier time; of a due shard it may record
// any due time.
func TestInFlightBehavesAsMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f InFlight
		twin := map[int]sent{}
		now := start
		for range rapid.IntRange(0, 80).Draw(t, "ops") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 400, 3000}).Draw(t, "ms")) * time.Millisecond)
			lo := rapid.IntRange(0, 120).Draw(t, "lo")
			switch rapid.SampledFrom([]string{"sent", "sent", "done", "fold", "reload"}).Draw(t, "op") {
			case "sent":
				hi := lo + rapid.IntRange(1, 12).Draw(t, "len")
				g := rapid.IntRange(0, 2).Draw(t, "generation")
				f.MarkSent(g, now, interval.Range{Lo: lo, Hi: hi})
				for n := lo; n < hi; n++ {
					twin[n] = sent{g, now}
				}
			case "done":
				f.MarkDone(lo)
				delete(twin, lo)
			case "fold":
				f.MergeDue(now)
			case "reload":
				f = reload(t, f)
			}
			compare(t, f, twin, now)
		}
	})
}

func reload(t *rapid.T, f InFlight) (back InFlight) {
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if len(f.Chunks) > 0 && !reflect.DeepEqual(f, back) {
		t.Fatalf("%v\nis read back as %v", f, back)
	}
	return back
}

func compare(t *rapid.T, f InFlight, twin map[int]sent, now time.Time) {
	if f.Len() != len(twin) {
		t.Fatalf("%d in flight, twin has %d", f.Len(), len(twin))
	}
	for i, c := range f.Chunks {
		if c.Len() <= 0 || i > 0 && f.Chunks[i-1].Hi > c.Lo {
			t.Fatalf("chunks %v are not disjoint and sorted", f.Chunks)
		}
		for n := c.Lo; n < c.Hi; n++ {
			was, ok := twin[n]
			g, known := f.Generation(n)
			if !ok || !known || g != was.generation || g != c.Generation {
				t.Fatalf("shard %d: generation %d, %v; twin %+v, %v", n, g, known, was, ok)
			}
			early := was.at.Sub(c.SentAt)
			if !c.Due(now) && (early < 0 || early > lossCheckDelay(g)/8) {
				t.Fatalf("shard %d is recorded %s before it was sent", n, early)
			}
			if c.Due(now) != (now.Sub(was.at) >= lossCheckDelay(g)) && early <= 0 {
				t.Fatalf("shard %d is recorded too late: whether it is due has changed", n)
			}
		}
	}
	for n := range 140 {
		if _, known := f.Generation(n); known != (twin[n] != sent{}) {
			t.Fatalf("shard %d is in flight: %v", n, known)
		}
	}
}

// TestSteadySendsDoNotDelayTheLossCheck checks that the oldest send of a chunk
// decides when it is due: later sends must not move its time.
func TestSteadySendsDoNotDelayTheLossCheck(t *testing.T) {
	t.Parallel()
	var f InFlight
	now := start
	for n := range 100 {
		f.MarkSent(0, now, interval.Range{Lo: n, Hi: n + 1})
		now = now.Add(100 * time.Millisecond)
	}
	if c := f.Chunks[0]; c.Lo != 0 || !c.Due(start.Add(5*time.Second)) {
		t.Errorf("shard 0 is in %+v and not due after 5 s", c)
	}
	if n := len(f.Chunks); n < 10 || n > 20 {
		t.Errorf("10 s of sends are %d chunks, want 10 to 20", n)
	}
}

func TestMergeDueMergesDueChunks(t *testing.T) {
	t.Parallel()
	var f InFlight
	for n := range 100 {
		f.MarkSent(0, start.Add(time.Duration(n)*time.Second), interval.Range{Lo: n, Hi: n + 1})
	}
	f.MergeDue(start.Add(99 * time.Second))
	if n := len(f.Chunks); n != 6 { // 0 to 94 as one, 95 to 99 not due
		t.Errorf("%d chunks: %v", n, f.Chunks)
	}
	if c := f.Chunks[0]; c.Len() != 95 || !c.Due(start.Add(99*time.Second)) {
		t.Errorf("the due chunk is %+v", c)
	}
}

func TestCloneIsIndependent(t *testing.T) {
	t.Parallel()
	var f InFlight
	f.MarkSent(0, start, interval.Range{Lo: 0, Hi: 9})
	g := f.Clone()
	g.MarkDone(0)
	g.MarkSent(1, start, interval.Range{Lo: 4, Hi: 5})
	if f.Len() != 9 || len(f.Chunks) != 1 {
		t.Errorf("changing a clone changed %v", f)
	}
}

func TestInFlightJSON(t *testing.T) {
	t.Parallel()
	var f InFlight
	f.MarkSent(0, start, interval.Range{Lo: 10, Hi: 20})
	f.MarkDone(12)
	f.MarkSent(1, start.Add(time.Minute), interval.Range{Lo: 15, Hi: 16})
	b, err := json.Marshal(f)
	if want := `[[0,1735689600000,10,2,1,2,1,4],[1,1735689660000,15,1]]`; err != nil || string(b) != want {
		t.Errorf("%s, want %s (%v)", b, want, err)
	}
	for _, in := range []string{`[[0,1]]`, `[[0,1,2]]`, `[[-1,0,0,1]]`, `[[0,0,0,0]]`, `[[0,0,0,5],[1,0,4,1]]`,
		`{"chunks":[]}`} {
		if err := json.Unmarshal([]byte(in), &f); err == nil {
			t.Errorf("%s is accepted as %v", in, f)
		}
	}
}
