package schedule

import (
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		pool, buffered, ranges int
		want                   int
	}{
		{"no pool", 0, 0, 0, 256},
		{"a small pool", 64, 0, 1, 256},
		{"four times the pool", 65, 0, 1, 260},
		{"never above what a document can hold", 257, 0, 1, 1024},
		{"a huge pool", 2000, 0, 1, 2500},
		{"at the limit of buffered shards", 0, 4096, 1, 256},
		{"one buffered shard more", 0, 4097, 1, 32},
		{"above the second limit of buffered shards", 500, 16385, 1, 1},
		{"at the limit of ranges", 0, 64, 64, 256},
		{"one range more", 0, 65, 65, 32},
		{"a larger pool may leave more ranges", 256, 200, 200, 1024},
	} {
		if got := Window(c.pool, c.buffered, c.ranges); got != c.want {
			t.Errorf("%s: Window(%d, %d, %d) = %d, want %d", c.name, c.pool, c.buffered, c.ranges, got, c.want)
		}
	}
}

func TestLossCheckDelayDoublesTo40s(t *testing.T) {
	t.Parallel()
	sent := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for g, seconds := range []time.Duration{5, 10, 20, 40, 40} {
		want := seconds * time.Second
		c := Chunk{Generation: g, SentAt: sent}
		if got := lossCheckDelay(g); got != want || c.Due(sent.Add(want-time.Millisecond)) || !c.Due(sent.Add(want)) {
			t.Errorf("generation %d is checked after %s, want %s", g, got, want)
		}
	}
	if got := lossCheckDelay(1 << 40); got != 40*time.Second {
		t.Errorf("a high generation is checked after %s, want 40s", got)
	}
}

// TestGenerationsRepeat checks that generations stay small: those with the longest
// backoff repeat.
func TestGenerationsRepeat(t *testing.T) {
	t.Parallel()
	g := 0
	for range 1000 {
		next := NextGeneration(g)
		if next == g || next > 15 || next < g && lossCheckDelay(next) != lossCheckDelay(g) {
			t.Fatalf("generation %d is followed by %d", g, next)
		}
		g = next
	}
}
