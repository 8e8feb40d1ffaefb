package finalize

import (
	"slices"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// totals sum up the contents of the files.
type totals struct {
	counts   shard.Counts
	copies   int // included in counts
	workers  []string
	snapshot *shard.Snapshot // the last one of a training
	scores   *grade.Totals   // nil in a run without graders
}

// maxWorkers bounds the list of workers in a summary.
const maxWorkers = 1000

func (t *totals) add(d shard.Doc) {
	t.counts.Add(d.Counts)
	if d.Snapshot != nil {
		t.snapshot = d.Snapshot
	}
	t.worker(d.Worker)
}

func (t *totals) worker(id string) {
	if i, found := slices.BinarySearch(t.workers, id); !found && id != "" && len(t.workers) < maxWorkers {
		t.workers = slices.Insert(t.workers, i, id)
	}
}

// count counts an item by its class; "" is an answered item.
func (t *totals) count(class fault.Class) {
	if class == "" {
		t.counts.OK++
		return
	}
	t.counts.Add(shard.Counts{Failed: 1, ByClass: map[string]int{string(class): 1}})
}

// join adds the totals of a segment.
func (t *totals) join(s record.OutputSegment) {
	t.add(shard.Doc{Counts: s.Counts})
	t.copies += s.Copies
	if s.Scores != nil {
		if t.scores == nil {
			t.scores = &grade.Totals{}
		}
		t.scores.Join(*s.Scores)
	}
	for _, w := range s.Workers {
		t.worker(w)
	}
}

// segment returns the record of a segment with these totals.
func (t totals) segment(from, to int) record.OutputSegment {
	return record.OutputSegment{Schema: record.Schema, From: from, To: to,
		Counts: t.counts, Copies: t.copies, Workers: t.workers, Scores: t.scores}
}
