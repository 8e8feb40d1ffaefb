package snapshottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/snapshot"
)

func testRoundtrip(t *testing.T, open func(t *testing.T) Stores) {
	stores, clock := open(t), start()
	s := storeOf(stores, clock)
	snap := save(t, s, folder("5"), details(runA, "first"))
	if snap.Run != runA || snap.Kind != snapshot.TrainState || snap.Algorithm != "sft" || snap.Label != "first" ||
		string(snap.Meta) != `{"step":5}` || !snap.CreatedAt.Equal(clock.now) {
		t.Errorf("saved as %+v", snap)
	}
	if p := snap.Parts; len(p) != 1 || p[0].Content != snap.ID || p[0].Role != snapshot.RoleTar {
		t.Errorf("the parts are %+v", p)
	}
	wantRestored(t, s, snap, folder("5"))
	id, _ := identity.ParseContentID(snap.ID)
	if got := objects(t, stores, ""); len(got) != 1 || got[0] != identity.ContentKey(id) {
		t.Errorf("the bucket holds %v", got)
	}
	// The restored folder has the same bytes, and so the same id.
	dst := filepath.Join(t.TempDir(), "state")
	if err := s.Restore(t.Context(), snap, dst); err != nil {
		t.Fatal(err)
	}
	if again := save(t, s, os.DirFS(dst), details(runB, "")); again.ID != snap.ID {
		t.Errorf("the restored folder is %s, the saved one %s", again.ID, snap.ID)
	}
}

func testSameContent(t *testing.T, open func(t *testing.T) Stores) {
	stores, clock := open(t), start()
	s := storeOf(stores, clock)
	first := save(t, s, folder("5"), details(runA, "first"))
	clock.now = clock.now.Add(time.Hour)
	again := save(t, s, folder("5"), details(runA, "second"))
	if again.Label != "first" || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("the run's second save of the content is %+v", again)
	}
	other := save(t, s, folder("5"), details(runB, "other"))
	if other.ID != first.ID || other.Label != "other" {
		t.Errorf("another run's save of the content is %+v", other)
	}
	if got := objects(t, stores, ""); len(got) != 1 {
		t.Errorf("the bucket holds %v", got)
	}
	if changed := save(t, s, folder("6"), details(runA, "")); changed.ID == first.ID {
		t.Error("another content has the same id")
	}
}

func testList(t *testing.T, open func(t *testing.T) Stores) {
	clock := start()
	s := storeOf(open(t), clock)
	var of []snapshot.Snapshot
	for i, d := range []snapshot.Details{details(runA, "warm up"), details(runB, "best"), details(runA, "")} {
		clock.now = clock.now.Add(time.Minute)
		of = append(of, save(t, s, folder(string(rune('a'+i))), d))
	}
	wantIDs(t, "all", list(t, s, snapshot.Filter{}), of[2], of[1], of[0])
	wantIDs(t, "of a run", list(t, s, snapshot.Filter{Run: runA}), of[2], of[0])
	wantIDs(t, "of a kind, the newest two", list(t, s, snapshot.Filter{Kind: snapshot.TrainState, Limit: 2}), of[2], of[1])
	wantIDs(t, "of another kind", list(t, s, snapshot.Filter{Kind: "buffer"}))
	wantIDs(t, "with a part of the label", list(t, s, snapshot.Filter{Label: "warm"}), of[0])
}

func testFind(t *testing.T, open func(t *testing.T) Stores) {
	s := storeOf(open(t), start())
	snap := save(t, s, folder("5"), details(runA, ""))
	save(t, s, folder("6"), details(runA, ""))
	for _, id := range []string{snap.ID, snap.ID[:snapshot.MinPrefix], strings.ToUpper(snap.ID[:20])} {
		if got, err := s.Find(t.Context(), id); err != nil || got.ID != snap.ID || got.Run != runA {
			t.Errorf("Find(%s) = %v, %v", id, got, err)
		}
	}
	for _, id := range []string{
		"", snap.ID[:snapshot.MinPrefix-1], strings.Repeat("0", 64), snap.ID + "0", "../../x", "zzzzzzzz",
	} {
		_, err := s.Find(t.Context(), id)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "snapshot not found: ") {
			t.Errorf("Find(%q): %v", id, err)
		}
	}
}

// testDamage damages the bytes of a snapshot: a restore fails and leaves no file, and
// the next save of the content repairs it.
func testDamage(t *testing.T, open func(t *testing.T) Stores) {
	for name, damage := range map[string]func(b []byte) []byte{
		"one bit flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"truncated":       func(b []byte) []byte { return b[:len(b)/2] },
		"longer":          func(b []byte) []byte { return append(b, 0) },
		"zeros":           func(b []byte) []byte { clear(b); return b },
		"missing":         func([]byte) []byte { return nil },
	} {
		stores := open(t)
		s := storeOf(stores, start())
		snap := save(t, s, folder("5"), details(runA, ""))
		id, _ := identity.ParseContentID(snap.ID)
		key := identity.ContentKey(id)
		bytes := damage(read(t, stores, key))
		if err := stores.Blobs.Delete(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
		if bytes != nil {
			if _, err := stores.Blobs.Put(t.Context(), key, strings.NewReader(string(bytes)), blob.PutOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		err := s.Restore(t.Context(), snap, filepath.Join(dir, "state"))
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), snap.ID) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v, %v", name, left, err)
		}
		wantRestored(t, s, save(t, s, folder("5"), details(runB, "")), folder("5"))
		wantRestored(t, s, snap, folder("5"))
	}
	s := storeOf(open(t), start())
	snap := save(t, s, folder("5"), details(runA, ""))
	dst := t.TempDir()
	err := s.Restore(t.Context(), snap, dst)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "exists") {
		t.Errorf("over a folder that exists: %v", err)
	}
	if _, err := s.Save(t.Context(), fstest.MapFS{}, details(runA, "")); !fault.Is(err, fault.Invalid) {
		t.Errorf("save of an empty folder: %v", err)
	}
}

func read(t *testing.T, s Stores, key string) []byte {
	t.Helper()
	r, info, err := s.Blobs.Get(t.Context(), key, blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, info.Size)
	for n := 0; n < len(b); {
		m, err := r.Read(b[n:])
		if n += m; err != nil && n < len(b) {
			t.Fatal(err)
		}
	}
	return b
}
