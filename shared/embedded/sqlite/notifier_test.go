package sqlite

import "testing"

// waiting registers a receiver and returns how often it was woken, at most
// once, since it was asked last.
func waiting(t *testing.T, b *notifier, queue string) (woken func() int) {
	t.Helper()
	w := b.wait(queue)
	t.Cleanup(func() { b.remove(w) })
	return func() int {
		select {
		case <-w.hints:
			return 1
		default:
			return 0
		}
	}
}

func create(t *testing.T, s *State, key string) {
	t.Helper()
	if _, err := s.Documents().Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAProcessesOwnWritesWakeOnlyThoseTheyConcern(t *testing.T) {
	t.Parallel()
	s := openState(t, t.TempDir(), Options{})
	woken := waiting(t, s.notifier, "work")
	look := &poller{notifier: s.notifier}
	for _, key := range []string{"a", "b"} {
		create(t, s, key)
		for range 3 {
			look.once(t.Context())
		}
	}
	if woken() != 0 {
		t.Error("a receiver was woken by a document")
	}
	if err := s.Queues().Send(t.Context(), "work", [][]byte{{1}}, 0); err != nil {
		t.Fatal(err)
	}
	if woken() != 1 {
		t.Error("a message woke nobody")
	}
}

func TestOthersWritesWakeEverybodyWhetherThisProcessWritesOrNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, other := openState(t, dir, Options{}), openState(t, dir, Options{})
	create(t, s, "first")
	woken := waiting(t, s.notifier, "work")
	create(t, other, "a")
	create(t, s, "b") // its transaction finds out
	if woken() != 1 {
		t.Error("the writer did not notice another's write")
	}
	create(t, other, "c")
	look := &poller{notifier: s.notifier}
	look.once(t.Context()) // the writer did this one's work
	look.once(t.Context())
	if woken() != 1 {
		t.Error("a look did not notice another's write")
	}
}
