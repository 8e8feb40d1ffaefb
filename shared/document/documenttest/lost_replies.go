package documenttest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/retry"
)

// LoseReplies wraps the store with a simulated network. After the store has
// performed a write, the wrapper calls lose; if it returns true, the caller gets
// Unavailable instead of the reply. Reads pass through.
func LoseReplies(s document.Store, lose func() bool) document.Store { return lossy{s, lose} }

type lossy struct {
	document.Store
	lose func() bool
}

func (l lossy) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	rev, err := l.Store.Create(ctx, key, value)
	return l.reply(rev, err)
}

func (l lossy) Replace(
	ctx context.Context, key string, value []byte, old document.Revision,
) (document.Revision, error) {
	rev, err := l.Store.Replace(ctx, key, value, old)
	return l.reply(rev, err)
}

func (l lossy) Delete(ctx context.Context, key string, rev document.Revision) error {
	_, err := l.reply("", l.Store.Delete(ctx, key, rev))
	return err
}

func (l lossy) reply(rev document.Revision, err error) (document.Revision, error) {
	if l.lose() {
		return "", fault.New(fault.Unavailable, "the reply was lost")
	}
	return rev, err
}

// quick returns a policy with negligible delays.
func quick(tries int) retry.Policy { return retry.Policy{Tries: tries, Base: time.Microsecond} }

func testOwnWrite(t *testing.T, f *fixture) {
	ctx := t.Context()
	var losses atomic.Int64
	s := document.Reliable(LoseReplies(f, func() bool { return losses.Add(-1) >= 0 }), quick(4))

	losses.Store(2)
	rev, err := s.Create(ctx, "doc", []byte("mine"))
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	f.want(t, "doc", "mine", rev)

	losses.Store(2)
	rev, err = s.Replace(ctx, "doc", []byte("mine too"), rev)
	if err != nil {
		t.Fatalf("replace: %v", err)
	}
	f.want(t, "doc", "mine too", rev)

	other := f.replace(t, "doc", "other's", rev)
	losses.Store(1)
	_, err = s.Replace(ctx, "doc", []byte("late"), rev)
	wantKind(t, err, fault.Conflict, "replace after another's")
	losses.Store(1)
	_, err = s.Create(ctx, "doc", []byte("late"))
	wantKind(t, err, fault.Conflict, "create after another's")
	losses.Store(1)
	wantKind(t, s.Delete(ctx, "doc", rev), fault.Conflict, "delete after another's replace")
	f.want(t, "doc", "other's", other)

	losses.Store(2)
	if err := s.Delete(ctx, "doc", other); err != nil {
		t.Fatalf("delete: %v", err)
	}
	losses.Store(0)
	wantKind(t, s.Delete(ctx, "doc", other), fault.NotFound, "delete of an absent document")

	losses.Store(4)
	_, err = s.Create(ctx, "lost", []byte("x"))
	wantKind(t, err, fault.Unavailable, "create whose replies are all lost")
}

// testLostReplies lets writers add their names to one document while half of all
// replies are lost. Each writer repeats until it reads its own name.
func testLostReplies(t *testing.T, f *fixture) {
	const writers = 12
	var replies atomic.Int64
	s := document.Reliable(LoseReplies(f, func() bool { return replies.Add(1)%2 == 0 }), quick(20))
	f.create(t, "names", "")
	errs := make([]error, writers)
	var done sync.WaitGroup
	for i := range writers {
		done.Go(func() { errs[i] = addName(t.Context(), s, fmt.Sprintf("w%02d", i)) })
	}
	done.Wait()
	d, err := f.Get(t.Context(), "names")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(string(d.Value))
	slices.Sort(names)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("writer %d: %v", i, err)
		}
		if len(names) != writers || names[i] != fmt.Sprintf("w%02d", i) {
			t.Fatalf("the document has the names %q, want those of %d writers, once each", names, writers)
		}
	}
}

func addName(ctx context.Context, s document.Store, name string) error {
	for {
		d, err := s.Get(ctx, "names")
		if err != nil || bytes.Contains(d.Value, []byte(name)) {
			return err
		}
		_, err = s.Replace(ctx, "names", []byte(string(d.Value)+name+" "), d.Revision)
		if err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
}
