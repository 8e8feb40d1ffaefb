// Package snapshottest is the conformance suite of package snapshot: every pair of a
// blob driver and a document driver passes it.
//
// It tests what package snapshot promises to its callers, and not how drivers work.
// Only tests import it.
package snapshottest

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/snapshot"
)

// Stores are the stores of snapshots.
type Stores struct {
	Blobs blob.Store
	Docs  document.Store
}

// Run tests snapshots in the stores. open must return empty stores at each call, and
// register their cleanup with t.
func Run(t *testing.T, open func(t *testing.T) Stores) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(t *testing.T, open func(t *testing.T) Stores)
	}{
		{"Roundtrip", testRoundtrip},
		{"SameContent", testSameContent},
		{"List", testList},
		{"Find", testFind},
		{"Damage", testDamage},
		{"Prune", testPrune},
		{"PruneKeepsSharedBytes", testPruneKeepsSharedBytes},
		{"LateDeletion", testLateDeletion},
		{"PruneBetweenRepeats", testPruneBetweenRepeats},
		{"Crash", testCrash},
		{"Races", testRaces},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, open)
		})
	}
}

// The runs of the tests.
const (
	runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVA")
	runB = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVB")
)

// settableClock is a clock that tests set.
type settableClock struct{ now time.Time }

func (w *settableClock) Now() time.Time { return w.now }

func start() *settableClock { return &settableClock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func storeOf(s Stores, c *settableClock) snapshot.Store {
	return snapshot.Store{Blobs: s.Blobs, Docs: s.Docs, Clock: c}
}

// folder returns a training state of the given step.
func folder(step string) fs.FS {
	return fstest.MapFS{
		"step":                {Data: []byte(step)},
		"model/params.bin":    {Data: make([]byte, 70_000)},
		"model/moments/1.bin": {Data: []byte("m" + step)},
		"empty":               {},
	}
}

func details(run identity.RunID, label string) snapshot.Details {
	return snapshot.Details{Run: run, Kind: snapshot.TrainState, Algorithm: "sft", Label: label,
		Meta: []byte(`{"step":5}`)}
}

func save(t *testing.T, s snapshot.Store, f fs.FS, d snapshot.Details) snapshot.Snapshot {
	t.Helper()
	snap, err := s.Save(t.Context(), f, d)
	if err != nil {
		t.Fatalf("Save: %v", err)
	}
	return snap
}

// wantRestored fails the test unless the snapshot restores to the folder.
func wantRestored(t *testing.T, s snapshot.Store, snap snapshot.Snapshot, want fs.FS) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "state")
	if err := s.Restore(t.Context(), snap, dst); err != nil {
		t.Errorf("Restore of %s: %v", snap, err)
		return
	}
	got, wanted := contents(t, os.DirFS(dst)), contents(t, want)
	if !maps.Equal(got, wanted) {
		t.Errorf("%s restores to %v, want %v",
			snap, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(wanted)))
	}
}

func contents(t *testing.T, f fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(f, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(f, name)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func list(t *testing.T, s snapshot.Store, f snapshot.Filter) []snapshot.Snapshot {
	t.Helper()
	all, err := s.List(t.Context(), f)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return all
}

func ids(snaps []snapshot.Snapshot) (out []string) {
	for _, s := range snaps {
		out = append(out, s.ID)
	}
	return out
}

// wantIDs fails the test unless the snapshots are these, in order.
func wantIDs(t *testing.T, what string, got []snapshot.Snapshot, want ...snapshot.Snapshot) {
	t.Helper()
	if !slices.Equal(ids(got), ids(want)) {
		t.Errorf("%s: %v, want %v", what, ids(got), ids(want))
	}
}

// objects lists the keys of all objects under a prefix.
func objects(t *testing.T, s Stores, prefix string) (out []string) {
	t.Helper()
	page, err := s.Blobs.List(t.Context(), prefix, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page {
		out = append(out, o.Key)
	}
	return out
}

// documents lists the keys of all documents.
func documents(t *testing.T, s Stores) (out []string) {
	t.Helper()
	for d, err := range document.All(t.Context(), s.Docs, "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d.Key)
	}
	return out
}
