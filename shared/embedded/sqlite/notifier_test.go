package sqlite

import "testing"

// waiting registers a receiver. woken returns 1 if the receiver was woken since the
// last call, else 0.
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

func TestOwnWritesWakeOnlyWaitersTheyConcern(t *testing.T) {
	t.Parallel()
	s := openState(t, t.TempDir(), Options{})
	woken := waiting(t, s.notifier, "work")
	p := &poller{notifier: s.notifier}
	for _, key := range []string{"a", "b"} {
		// A poll between a commit and its notice takes the write for another process's.
		s.notifier.polling.Lock()
		create(t, s, key)
		s.notifier.polling.Unlock()
		for range 3 {
			p.once(t.Context(), true)
		}
	}
	if woken() != 0 {
		t.Error("a document woke a receiver")
	}
	if err := s.Queues().Send(t.Context(), "work", [][]byte{{1}}, 0); err != nil {
		t.Fatal(err)
	}
	if woken() != 1 {
		t.Error("a message did not wake its receiver")
	}
}

func TestWritesOfOthersWakeWaitersTheyConcern(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, other := openState(t, dir, Options{}), openState(t, dir, Options{})
	create(t, s, "first")
	woken := waiting(t, s.notifier, "work")
	s.notifier.polling.Lock() // the notifier's own polls wait
	create(t, other, "a")
	create(t, s, "b") // this transaction notices it
	s.notifier.polling.Unlock()
	if woken() != 1 {
		t.Error("the writer did not notice the write of another process")
	}
	watched := s.notifier.watch(t.Context(), "d")
	p := &poller{notifier: s.notifier}
	p.once(t.Context(), true) // finds no more
	create(t, other, "c")
	p.once(t.Context(), true)
	<-watched // its prefix is not looked at
	if woken() != 0 {
		t.Error("a document of another process woke a receiver")
	}
	if err := other.Queues().Send(t.Context(), "work", [][]byte{{1}}, 0); err != nil {
		t.Fatal(err)
	}
	p.once(t.Context(), true)
	if woken() != 1 {
		t.Error("a message of another process did not wake its receiver")
	}
}
