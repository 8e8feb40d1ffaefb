package snapshottest

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/retry"
	"rollout/shared/snapshot"
)

func testPrune(t *testing.T, open func(t *testing.T) Stores) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name string
		keep snapshot.Retention
		want []int // of six snapshots, one for each day, the newest first; 1 and 4 have labels
	}{
		{"newest", snapshot.Retention{KeepLast: 2}, []int{0, 1}},
		{"newest and labeled", snapshot.Retention{KeepLast: 1, KeepLabeled: true}, []int{0, 1, 4}},
		{"newest and not older than two days", snapshot.Retention{KeepLast: 1, MaxAge: 2 * day}, []int{0, 1, 2}},
		{"the newest are kept at any age", snapshot.Retention{KeepLast: 4, MaxAge: day}, []int{0, 1, 2, 3}},
		{"more than exist", snapshot.Retention{KeepLast: 9}, []int{0, 1, 2, 3, 4, 5}},
		{"none", snapshot.Retention{}, nil},
	} {
		stores, clock := open(t), start()
		s := storeOf(stores, clock)
		labels := map[int]string{1: "best", 4: "base"}
		of := make([]snapshot.Snapshot, 6)
		for i := 5; i >= 0; i-- {
			clock.now = clock.now.Add(day)
			of[i] = save(t, s, folder(strconv.Itoa(i)), details(runA, labels[i]))
		}
		other := save(t, s, folder("other"), details(runB, ""))
		gone, err := s.Prune(t.Context(), runA, c.keep)
		if err != nil || len(gone) != len(of)-len(c.want) {
			t.Errorf("%s: pruned %d, %v", c.name, len(gone), err)
		}
		var want []snapshot.Snapshot
		for _, i := range c.want {
			want = append(want, of[i])
		}
		wantIDs(t, c.name, list(t, s, snapshot.Filter{Run: runA}), want...)
		wantIDs(t, c.name+", another run", list(t, s, snapshot.Filter{Run: runB}), other)
		if n := len(objects(t, stores, "")); n != len(c.want)+1 {
			t.Errorf("%s: %d objects are left, want %d", c.name, n, len(c.want)+1)
		}
		if n := len(documents(t, stores)); n != 2*(len(c.want)+1) {
			t.Errorf("%s: the documents left are %v", c.name, documents(t, stores))
		}
	}
	s := storeOf(open(t), start())
	for _, r := range []snapshot.Retention{{KeepLast: -1}, {MaxAge: -1}} {
		if _, err := s.Prune(t.Context(), runA, r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := s.Prune(t.Context(), "", snapshot.Retention{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a run: %v", err)
	}
}

func testPruneKeepsSharedBytes(t *testing.T, open func(t *testing.T) Stores) {
	stores, clock := open(t), start()
	s := storeOf(stores, clock)
	save(t, s, folder("5"), details(runA, ""))
	other := save(t, s, folder("5"), details(runB, ""))
	if gone, err := s.Prune(t.Context(), runA, snapshot.Retention{}); err != nil || len(gone) != 1 {
		t.Fatalf("pruned %v, %v", gone, err)
	}
	wantRestored(t, s, other, folder("5"))
	if _, err := s.Prune(t.Context(), runB, snapshot.Retention{}); err != nil {
		t.Fatal(err)
	}
	if left := append(objects(t, stores, ""), documents(t, stores)...); len(left) > 0 {
		t.Errorf("after the last snapshot was pruned, %v are left", left)
	}
	wantRestored(t, s, save(t, s, folder("5"), details(runA, "")), folder("5"))
}

// testLateDeletion saves a content again after its deletion was decided: the deletion
// must not remove the new bytes.
func testLateDeletion(t *testing.T, open func(t *testing.T) Stores) {
	stores, clock := open(t), start()
	s := storeOf(stores, clock)
	old := save(t, s, folder("5"), details(runA, ""))
	id, _ := identity.ParseContentID(old.ID)
	var saved snapshot.Snapshot
	slow := Stores{&hooked{Store: stores.Blobs, key: identity.ContentKey(id), before: func() {
		saved = save(t, s, folder("5"), details(runB, ""))
	}}, stores.Docs}
	if _, err := storeOf(slow, clock).Prune(t.Context(), runA, snapshot.Retention{}); err != nil {
		t.Fatal(err)
	}
	if saved.ID != old.ID {
		t.Fatalf("saved %s during the deletion of %s", saved.ID, old.ID)
	}
	wantRestored(t, s, saved, folder("5"))
}

// testPruneBetweenRepeats loses the reply to the write of a snapshot's document, and prunes the
// snapshot before the write is repeated: the repetition must not list it without its bytes.
func testPruneBetweenRepeats(t *testing.T, open func(t *testing.T) Stores) {
	stores, clock := open(t), start()
	s := storeOf(stores, clock)
	pruned := 0
	lossy := Stores{stores.Blobs, document.Reliable(&losing{Store: stores.Docs, prefix: "snapshot/", meanwhile: func() {
		gone, err := s.Prune(t.Context(), runA, snapshot.Retention{})
		if err != nil {
			t.Error(err)
		}
		pruned += len(gone)
	}}, retry.Policy{Base: time.Microsecond})}
	snap := save(t, storeOf(lossy, clock), folder("5"), details(runA, ""))
	if pruned != 1 {
		t.Fatalf("%d snapshots were pruned, want 1", pruned)
	}
	wantRestored(t, s, snap, folder("5"))
	if _, err := s.Prune(t.Context(), runA, snapshot.Retention{}); err != nil {
		t.Error(err)
	}
	if left := append(objects(t, stores, ""), documents(t, stores)...); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// losing loses the reply to the first document that is created under a prefix.
type losing struct {
	document.Store
	prefix    string
	meanwhile func()
}

func (l *losing) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	rev, err := l.Store.Create(ctx, key, value)
	if f := l.meanwhile; f != nil && strings.HasPrefix(key, l.prefix) {
		l.meanwhile = nil
		f()
		return "", fault.New(fault.Unavailable, "the reply was lost")
	}
	return rev, err
}

// hooked calls before at the first deletion of a key.
type hooked struct {
	blob.Store
	key    string
	before func()
}

func (h *hooked) Delete(ctx context.Context, key, version string) error {
	if f := h.before; f != nil && key == h.key {
		h.before = nil
		f()
	}
	return h.Store.Delete(ctx, key, version)
}

// testCrash crashes a process after each of its writes. Every listed snapshot can be
// restored, and the next process cleans up.
func testCrash(t *testing.T, open func(t *testing.T) Stores) {
	acts := map[string]func(ctx context.Context, s snapshot.Store) error{
		"save": func(ctx context.Context, s snapshot.Store) error {
			_, err := s.Save(ctx, folder("5"), details(runA, ""))
			return err
		},
		"prune": func(ctx context.Context, s snapshot.Store) error {
			_, err := s.Prune(ctx, runA, snapshot.Retention{})
			return err
		},
	}
	for name, act := range acts {
		for writes := 0; ; writes++ {
			stores, clock := open(t), start()
			next := storeOf(stores, clock)
			if name == "prune" {
				save(t, next, folder("4"), details(runA, ""))
				save(t, next, folder("5"), details(runA, ""))
			}
			err := act(t.Context(), storeOf(crashingStores(stores, writes), clock))
			for _, snap := range list(t, next, snapshot.Filter{}) {
				if err := next.Restore(t.Context(), snap, t.TempDir()+"/state"); err != nil {
					t.Errorf("%s, crash after %d writes: %v", name, writes, err)
				}
			}
			wantRestored(t, next, save(t, next, folder("5"), details(runA, "")), folder("5"))
			clock.now = clock.now.Add(48 * time.Hour)
			if _, err := next.Prune(t.Context(), runA, snapshot.Retention{}); err != nil {
				t.Errorf("%s, crash after %d writes: prune: %v", name, writes, err)
			}
			if left := append(objects(t, stores, "cas/"), documents(t, stores)...); len(left) > 0 {
				t.Errorf("%s, crash after %d writes: %v are left", name, writes, left)
			}
			if err == nil {
				if writes < 4 {
					t.Errorf("%s took only %d writes", name, writes)
				}
				break
			}
		}
	}
}

// testRaces saves and prunes one content concurrently: every snapshot that is listed at
// the end can be restored.
func testRaces(t *testing.T, open func(t *testing.T) Stores) {
	stores := open(t)
	s := storeOf(stores, start())
	var all sync.WaitGroup
	for i := range 4 {
		run := []identity.RunID{runA, runB}[i%2]
		all.Go(func() {
			for range 6 {
				if _, err := s.Save(t.Context(), folder("5"), details(run, "")); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 6 {
				if _, err := s.Prune(t.Context(), run, snapshot.Retention{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, snap := range list(t, s, snapshot.Filter{}) {
		wantRestored(t, s, snap, folder("5"))
	}
	for _, run := range []identity.RunID{runA, runB} {
		wantRestored(t, s, save(t, s, folder("5"), details(run, "")), folder("5"))
		if _, err := s.Prune(t.Context(), run, snapshot.Retention{}); err != nil {
			t.Error(err)
		}
	}
	if left := append(objects(t, stores, ""), documents(t, stores)...); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// crashingStores returns the stores of a process that crashes after that many writes.
func crashingStores(s Stores, writes int) Stores {
	left := new(atomic.Int64)
	left.Store(int64(writes))
	return Stores{crashingBlobs{s.Blobs, left}, crashingDocs{s.Docs, left}}
}

type crashingBlobs struct {
	blob.Store
	left *atomic.Int64
}

type crashingDocs struct {
	document.Store
	left *atomic.Int64
}

func crashed(left *atomic.Int64) error {
	if left.Add(-1) < 0 {
		return fault.New(fault.Unavailable, "the process has crashed")
	}
	return nil
}

func (m crashingBlobs) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := crashed(m.left); err != nil {
		return blob.Info{}, err
	}
	return m.Store.Put(ctx, key, r, o)
}

func (m crashingBlobs) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	if err := crashed(m.left); err != nil {
		return blob.Info{}, err
	}
	return m.Store.Copy(ctx, dst, src)
}

func (m crashingBlobs) Delete(ctx context.Context, key, version string) error {
	if err := crashed(m.left); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key, version)
}

func (m crashingDocs) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := crashed(m.left); err != nil {
		return "", err
	}
	return m.Store.Create(ctx, key, value)
}

func (m crashingDocs) Replace(ctx context.Context, key string, value []byte,
	rev document.Revision) (document.Revision, error) {
	if err := crashed(m.left); err != nil {
		return "", err
	}
	return m.Store.Replace(ctx, key, value, rev)
}

func (m crashingDocs) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := crashed(m.left); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key, rev)
}
