// Package documenttest is the conformance suite of the document port. It tests
// the promises that every driver of document.Store must keep. Only tests import
// it.
//
// It never sleeps and never measures speed.
package documenttest

import (
	"context"
	"fmt"
	"testing"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// Features describes the promises that differ between drivers.
type Features struct {
	// Reopen opens another handle on the store of s, as another process would. Nil
	// reuses s.
	Reopen func(t *testing.T, s document.Store) document.Store
	// Watch is true if the store is a document.Watcher that sends hints.
	Watch bool
	// LosesReplies is true if the store under test loses replies. A write whose
	// reply is lost is repeated; the repetition is a Conflict if another write
	// replaced it meanwhile. Such a history is not linearizable, so the suite skips
	// that test.
	LosesReplies bool
}

// Run tests the driver. Each call of open returns a handle on a new empty store.
func Run(t *testing.T, open func(t *testing.T) document.Store, features Features) {
	if features.Reopen == nil {
		features.Reopen = func(_ *testing.T, s document.Store) document.Store { return s }
	}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, f *fixture)
	}{
		{"a document reads back as written", testReadBack},
		{"an absent document is NotFound", testAbsent},
		{"writes need the revision they replace", testRevisions},
		{"a revision is never used twice", testRevisionsAreFresh},
		{"values are copies", testCopies},
		{"keys and values have limits", testLimits},
		{"GetMany answers in the order of keys", testGetMany},
		{"of 50 creates one wins", testCreateRace},
		{"of 50 replaces one wins", testReplaceRace},
		{"of 50 deletes one wins", testDeleteRace},
		{"reads see every write that returned", testReadYourWrites},
		{"List returns keys in byte order", testListOrder},
		{"List pages through everything", testPaging},
		{"List agrees with a sorted slice", testListModel},
		{"an ended context is Canceled", testCanceled},
		{"a repeated write of the same caller succeeds", testOwnWrite},
		{"competing writers survive lost replies", testLostReplies},
		{"Ping answers", testPing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newFixture(t, open, features))
		})
	}
	if !features.LosesReplies {
		t.Run("histories are linearizable", func(t *testing.T) {
			t.Parallel()
			testHistory(t, newFixture(t, open, features))
		})
	}
	if features.Watch {
		t.Run("a watch hints at writes under its prefix", func(t *testing.T) {
			t.Parallel()
			testWatch(t, newFixture(t, open, features))
		})
	}
}

// fixture is one store with two handles on it.
type fixture struct {
	document.Store
	other document.Store
}

func newFixture(t *testing.T, open func(t *testing.T) document.Store, features Features) *fixture {
	s := open(t)
	return &fixture{Store: s, other: features.Reopen(t, s)}
}

func (f *fixture) create(t *testing.T, key, value string) document.Revision {
	t.Helper()
	rev, err := f.Create(t.Context(), key, []byte(value))
	if err != nil {
		t.Fatalf("create %s: %v", key, err)
	}
	if rev == "" {
		t.Fatalf("create %s: the revision is empty", key)
	}
	return rev
}

func (f *fixture) replace(t *testing.T, key, value string, rev document.Revision) document.Revision {
	t.Helper()
	rev, err := f.Replace(t.Context(), key, []byte(value), rev)
	if err != nil {
		t.Fatalf("replace %s: %v", key, err)
	}
	return rev
}

// want fails the test unless both handles read the value and revision.
func (f *fixture) want(t *testing.T, key, value string, rev document.Revision) {
	t.Helper()
	for _, s := range []document.Store{f.Store, f.other} {
		d, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatalf("get %s: %v", key, err)
		}
		if d.Key != key || string(d.Value) != value || d.Revision != rev {
			t.Fatalf("get %s: got {%s %.40q %s}, want {%s %.40q %s}", key, d.Key, d.Value, d.Revision, key, value, rev)
		}
	}
}

// wantKind fails the test unless err has the kind.
func wantKind(t *testing.T, err error, kind fault.Kind, format string, args ...any) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got error %v (%v), want %v", fmt.Sprintf(format, args...), err, fault.KindOf(err), kind)
	}
}

func keysOf(docs []document.Doc) []string {
	keys := make([]string, len(docs))
	for i, d := range docs {
		keys[i] = d.Key
	}
	return keys
}

func testPing(t *testing.T, f *fixture) {
	if err := f.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func testCanceled(t *testing.T, f *fixture) {
	rev := f.create(t, "there", "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := map[string]func() error{
		"get":      func() error { _, err := f.Get(ctx, "there"); return err },
		"get many": func() error { _, err := f.GetMany(ctx, []string{"there"}); return err },
		"create":   func() error { _, err := f.Create(ctx, "new", nil); return err },
		"replace":  func() error { _, err := f.Replace(ctx, "there", nil, rev); return err },
		"delete":   func() error { return f.Delete(ctx, "there", rev) },
		"list":     func() error { _, err := f.List(ctx, "", "", 1); return err },
		"ping":     func() error { return f.Ping(ctx) },
	}
	for name, call := range calls {
		wantKind(t, call(), fault.Canceled, "%s", name)
	}
}

func testWatch(t *testing.T, f *fixture) {
	w, ok := f.Store.(document.Watcher)
	if !ok {
		t.Fatalf("%T is not a document.Watcher", f.Store)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hints := w.Watch(ctx, "a/")
	rev := f.create(t, "a/1", "x")
	<-hints
	rev, err := f.other.Replace(t.Context(), "a/1", []byte("y"), rev)
	if err != nil {
		t.Fatal(err)
	}
	<-hints
	if err := f.other.Delete(t.Context(), "a/1", rev); err != nil {
		t.Fatal(err)
	}
	<-hints
	cancel()
	for range hints { // ends when the channel is closed
	}
}
