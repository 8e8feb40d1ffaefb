package worker

import (
	"strings"
	"testing"

	"rollout/shared/input"
	"rollout/shared/record"
)

func TestPutCopiesRow(t *testing.T) {
	t.Parallel()
	s := newShard(record.Manifest{}, 0, input.Shard{Lines: make([]input.Line, 300)})
	fill(s, 0)
	check(t, s, 0)
}

func TestPagesAreReusedOnlyAfterFreeRows(t *testing.T) {
	t.Parallel()
	var pages buffers
	shard := func() *Shard {
		s := newShard(record.Manifest{}, 0, input.Shard{Lines: make([]input.Line, 300)})
		s.pages = &pages
		return s
	}
	one, two := shard(), shard()
	fill(one, 1)
	for n := range 5 {
		fill(two, 2+n)
		check(t, two, 2+n)
		two.freeRows()
		if items, rows, _ := two.progress(); items != 300 || rows != 300 {
			t.Errorf("after freeRows the shard has %d rows of %d items", rows, items)
		}
		two = shard()
	}
	check(t, one, 1)
}

// fill puts a row for every item, which differs between shards. The rows have many
// lengths and take several pages.
func fill(s *Shard, shard int) {
	row := make([]byte, 0, 1000)
	for i := range s.Lines {
		row = append(row[:0], wantRow(shard, i)...)
		s.Put(i, row, "", Tokens{})
	}
}

func check(t *testing.T, s *Shard, shard int) {
	t.Helper()
	rows, _ := s.final()
	if len(rows) != len(s.Lines) {
		t.Fatalf("shard %d has %d rows", shard, len(rows))
	}
	for i, r := range rows {
		if string(r.Bytes) != wantRow(shard, i) {
			t.Fatalf("row %d of shard %d is %q", i, shard, r.Bytes)
		}
	}
}

func wantRow(shard, i int) string { return strings.Repeat(string(rune('a'+(i+shard)%26)), 3*i+1) }
