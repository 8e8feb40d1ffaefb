package blobtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

func testPut(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("stores the bytes of readers with unusual read sizes", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		content := pattern(300_000, 1)
		for name, r := range map[string]io.Reader{
			"whole":         strings.NewReader(content),
			"halves":        iotest.HalfReader(strings.NewReader(content)),
			"EOF with data": iotest.DataErrReader(strings.NewReader(content)),
			"empty reads":   &haltingReader{r: strings.NewReader(content)},
		} {
			if _, err := s.Put(t.Context(), name, r, blob.PutOptions{}); err != nil {
				t.Errorf("Put, %s: %v", name, err)
			}
			wantContent(t, s, name, content)
		}
	})
	t.Run("stores an empty object", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		put(t, s, "empty", "")
		wantContent(t, s, "empty", "")
		if got := keys(t, s, ""); len(got) != 1 {
			t.Errorf("List = %q", got)
		}
	})
	t.Run("returns a reader's error unchanged without creating an object", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for i, broken := range []error{errors.New("the reader broke"), io.ErrUnexpectedEOF, uncomparable{"x"}} {
			for _, before := range []int{0, 1, 5_000_000} {
				key := fmt.Sprintf("broken/%d/%d", i, before)
				r := io.MultiReader(strings.NewReader(pattern(before, 2)), iotest.ErrReader(broken))
				_, err := s.Put(t.Context(), key, r, blob.PutOptions{})
				if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", broken, broken) {
					t.Errorf("Put after %d bytes = %v, want the reader's own %v", before, err, broken)
				}
				wantAbsent(t, s, key)
			}
		}
	})
	t.Run("keeps the old version after a reader's error", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		old := put(t, s, "k", "old")
		_, err := s.Put(
			t.Context(),
			"k",
			io.MultiReader(strings.NewReader("new"), iotest.ErrReader(io.ErrClosedPipe)),
			blob.PutOptions{},
		)
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Put = %v", err)
		}
		wantContent(t, s, "k", "old")
		if now, err := s.Stat(t.Context(), "k", ""); err != nil || now.Version != old.Version {
			t.Errorf("Stat = %+v, %v, want version %s", now, err, old.Version)
		}
	})
	t.Run("an object is invisible until it is complete", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := &hookedReader{r: strings.NewReader(pattern(1_000_000, 3)), atEOF: func() { wantAbsent(t, s, "dir/k") }}
		if _, err := s.Put(t.Context(), "dir/k", r, blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		wantContent(t, s, "dir/k", pattern(1_000_000, 3))
	})
	t.Run("a canceled context stops a put without creating an object", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		r := &hookedReader{r: strings.NewReader(pattern(1_000_000, 4)), atEOF: cancel}
		_, err := s.Put(ctx, "k", io.MultiReader(r, strings.NewReader(pattern(1_000_000, 5))), blob.PutOptions{})
		wantKind(t, err, fault.Canceled, "Put")
		wantAbsent(t, s, "k")
	})
}

func testConditions(t *testing.T, open func(t *testing.T) blob.Store, _ Features) {
	t.Run("create-only fails if the object exists and changes nothing", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		first, err := s.Put(t.Context(), "k", strings.NewReader("first"), blob.PutOptions{CreateOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Put(t.Context(), "k", strings.NewReader("second"), blob.PutOptions{CreateOnly: true})
		wantKind(t, err, fault.Conflict, "second create-only Put")
		wantContent(t, s, "k", "first")
		if now, err := s.Stat(t.Context(), "k", first.Version); err != nil || now.Version != first.Version {
			t.Errorf("Stat = %+v, %v", now, err)
		}
	})
	t.Run("of 50 concurrent create-only puts one wins", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		wins := race(50, func(i int) error {
			_, err := s.Put(
				t.Context(),
				"a/b/c",
				strings.NewReader(fmt.Sprint("writer ", i)),
				blob.PutOptions{CreateOnly: true},
			)
			return err
		})
		winner := onlyWinner(t, wins)
		wantContent(t, s, "a/b/c", fmt.Sprint("writer ", winner))
	})
	t.Run("if-version replaces only that version", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		_, err := s.Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{IfVersion: "1"})
		wantKind(t, err, fault.Conflict, "Put over an absent object")
		wantAbsent(t, s, "k")
		one := put(t, s, "k", "one")
		two, err := s.Put(t.Context(), "k", strings.NewReader("two"), blob.PutOptions{IfVersion: one.Version})
		if err != nil || two.Version == one.Version {
			t.Fatalf("Put = %+v, %v", two, err)
		}
		_, err = s.Put(t.Context(), "k", strings.NewReader("three"), blob.PutOptions{IfVersion: one.Version})
		wantKind(t, err, fault.Conflict, "Put over a replaced version")
		wantContent(t, s, "k", "two")
	})
	t.Run("of 50 concurrent if-version puts one wins", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		base := put(t, s, "k", "base")
		wins := race(50, func(i int) error {
			_, err := s.Put(
				t.Context(),
				"k",
				strings.NewReader(fmt.Sprint("writer ", i)),
				blob.PutOptions{IfVersion: base.Version},
			)
			return err
		})
		winner := onlyWinner(t, wins)
		wantContent(t, s, "k", fmt.Sprint("writer ", winner))
	})
	t.Run("both conditions at once are refused", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		_, err := s.Put(t.Context(), "k", strings.NewReader("x"), blob.PutOptions{CreateOnly: true, IfVersion: "1"})
		wantKind(t, err, fault.Invalid, "Put")
	})
}

// race runs n concurrent calls of f and returns their errors.
func race(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	all.Wait()
	return errs
}

// onlyWinner returns the index of the call without an error. It fails the test
// unless all other calls got a Conflict.
func onlyWinner(t *testing.T, errs []error) int {
	t.Helper()
	winner, wins := -1, 0
	for i, err := range errs {
		if err == nil {
			winner = i
			wins++
		} else {
			wantKind(t, err, fault.Conflict, fmt.Sprint("loser ", i))
		}
	}
	if wins != 1 {
		t.Fatalf("%d of %d writers won, want 1", wins, len(errs))
	}
	return winner
}

// hookedReader calls atEOF before it returns io.EOF.
type hookedReader struct {
	r     io.Reader
	atEOF func()
}

func (h *hookedReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if err == io.EOF {
		h.atEOF()
	}
	return n, err
}

// haltingReader returns no bytes at every other read.
type haltingReader struct {
	r    io.Reader
	halt bool
}

func (h *haltingReader) Read(p []byte) (int, error) {
	if h.halt = !h.halt; h.halt {
		return 0, nil
	}
	return h.r.Read(p)
}

// uncomparable is an error whose comparison with == panics.
type uncomparable []string

func (u uncomparable) Error() string { return u[0] }
