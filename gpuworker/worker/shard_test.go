package worker

import (
	"strings"
	"testing"

	"rollout/shared/input"
	"rollout/shared/record"
)

func TestRowsAreKeptWhateverBecomesOfTheBufferTheyCameIn(t *testing.T) {
	t.Parallel()
	s := newShard(record.Manifest{}, 0, input.Shard{Lines: make([]input.Line, 300)})
	row := make([]byte, 0, 1000)
	for i := range s.Lines {
		row = append(row[:0], strings.Repeat(string(rune('a'+i%26)), 3*i+1)...)
		s.Put(i, row, "", Tokens{})
	}
	rows, _ := s.final()
	for i, r := range rows {
		if string(r.Bytes) != strings.Repeat(string(rune('a'+i%26)), 3*i+1) {
			t.Fatalf("row %d is %q", i, r.Bytes)
		}
	}
}
