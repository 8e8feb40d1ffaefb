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
	copies   int            // included in counts
	roles    []shard.Counts // of the roles from 1 on; counts has their tokens too, and all of those with output
	role     uint32         // of the shard that is written, whose role has output; 0: no further role
	workers  []string
	snapshot *shard.Snapshot // the last one of a training
	scores   *grade.Totals   // nil in a run without graders
}

// maxWorkers bounds the list of workers in a summary.
const maxWorkers = 1000

func (t *totals) add(d shard.Doc) {
	t.addCounts(d.Counts)
	if d.Snapshot != nil {
		t.snapshot = d.Snapshot
	}
	t.worker(d.Worker)
}

// addCounts adds counts of the shard that is written.
func (t *totals) addCounts(c shard.Counts) {
	t.counts.Add(c)
	if t.role > 0 {
		t.ofRole(t.role).Add(c)
	}
}

// ofRole returns the counts of a role from 1 on.
func (t *totals) ofRole(role uint32) *shard.Counts {
	for len(t.roles) < int(role) {
		t.roles = append(t.roles, shard.Counts{})
	}
	return &t.roles[role-1]
}

// addUnseen adds a shard of a role without output: its tokens alone count among those of
// the run.
func (t *totals) addUnseen(role uint32, d shard.Doc) {
	t.ofRole(role).Add(d.Counts)
	d.Counts = d.Counts.TokensOnly()
	t.add(d)
}

func (t *totals) worker(id string) {
	if i, found := slices.BinarySearch(t.workers, id); !found && id != "" && len(t.workers) < maxWorkers {
		t.workers = slices.Insert(t.workers, i, id)
	}
}

// count counts an item by its class; "" is an answered item.
func (t *totals) count(class fault.Class) {
	if class == "" {
		t.addCounts(shard.Counts{OK: 1})
		return
	}
	t.addCounts(shard.Counts{Failed: 1, ByClass: map[string]int{string(class): 1}})
}

// join adds the totals of a segment.
func (t *totals) join(s record.OutputSegment) {
	t.role = 0
	t.add(shard.Doc{Counts: s.Counts})
	t.copies += s.Copies
	for i, c := range s.Roles {
		if i == len(t.roles) {
			t.roles = append(t.roles, shard.Counts{})
		}
		t.roles[i].Add(c)
	}
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
		Counts: t.counts, Copies: t.copies, Workers: t.workers, Scores: t.scores, Roles: t.roles}
}
