package record

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
)

func TestKeysOfEndedRunsSortTheLastFirst(t *testing.T) {
	t.Parallel()
	const r identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	keys := []string{RunIndexKey, EndedKey(at.AddDate(200, 0, 0), r), EndedKey(at.Add(time.Millisecond), r),
		EndedAfter(at), EndedKey(at, r), EndedKey(at, "01JD2ZQ4T5W0M1X9YB7R3K8CVF"), EndedKey(at.AddDate(-1, 0, 0), r),
		EndedKey(time.Time{}, r)}
	if !slices.IsSorted(keys) {
		t.Errorf("got %q", keys)
	}
	for _, key := range keys {
		if err := document.CheckKey(key); err != nil {
			t.Error(err)
		}
	}
	if id, ok := RunOfEntry(EndedKey(at, r)); !ok || id != r {
		t.Errorf("got %s, %t", id, ok)
	}
	if id, ok := RunOfEntry(RunIndexKey); ok {
		t.Errorf("the index is taken for run %s", id)
	}
}

func TestEntriesByNameAreSeparateAndSortTheNewestFirst(t *testing.T) {
	t.Parallel()
	m := Manifest{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Name: "nächtlich / 1", CreatedAt: time.Unix(1, 0),
		Inputs: []Input{{Key: "nächtlich / 1", Size: 7}}}
	later := m
	later.CreatedAt = time.Unix(2, 0)
	of, ofLater := NamedEntries(m, true), NamedEntries(later, true)
	if len(of) != 3 || !strings.HasPrefix(of[0].Key, NamePrefix(m.Name)) || of[1].Key != CreatedKey(m.CreatedAt, m.Run) ||
		!strings.HasPrefix(of[2].Key, InputPrefix(m.Name)) || NamePrefix(m.Name) == InputPrefix(m.Name) ||
		of[2].Size != 7 || ofLater[0].Key >= of[0].Key || ofLater[1].Key >= of[1].Key {
		t.Errorf("got %+v and %+v", of, ofLater)
	}
	for _, e := range of {
		if err := document.CheckKey(e.Key); err != nil {
			t.Error(err)
		}
	}
	m.Parent = &Parent{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVX"}
	child := NamedEntries(m, true)
	if len(child) != 3 || !strings.HasPrefix(child[2].Key, ParentPrefix(m.Parent.Run)) {
		t.Errorf("a child has the entries %+v, want those by name, by time and by parent", child)
	}
	if len(NamedEntries(later, false)) != 1 {
		t.Error("a run of a cloud has an entry by time or by input")
	}
}
