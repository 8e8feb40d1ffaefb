package documenttest

import (
	"fmt"
	"sync"
	"testing"

	"rollout/shared/document"
	"rollout/shared/fault"
)

const racers = 50

// race runs one concurrent call for each racer, over both handles, and returns
// the winner. All other calls must fail with one of the kinds.
func race(t *testing.T, f *fixture, call func(s document.Store, name string) error, lost ...fault.Kind) string {
	t.Helper()
	errs := make([]error, racers)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range racers {
		s := f.Store
		if i%2 == 1 {
			s = f.other
		}
		done.Go(func() {
			<-start
			errs[i] = call(s, racer(i))
		})
	}
	close(start)
	done.Wait()
	winner := ""
	for i, err := range errs {
		switch {
		case err == nil && winner == "":
			winner = racer(i)
		case err == nil:
			t.Errorf("both %s and %s won", winner, racer(i))
		default:
			ok := false
			for _, kind := range lost {
				ok = ok || fault.Is(err, kind)
			}
			if !ok {
				t.Errorf("%s: %v (%v), want %v", racer(i), err, fault.KindOf(err), lost)
			}
		}
	}
	if winner == "" {
		t.Fatal("no racer won")
	}
	return winner
}

func racer(i int) string { return fmt.Sprintf("racer %d", i) }

func testCreateRace(t *testing.T, f *fixture) {
	winner := race(t, f, func(s document.Store, name string) error {
		_, err := s.Create(t.Context(), "doc", []byte(name))
		return err
	}, fault.Conflict)
	d, err := f.Get(t.Context(), "doc")
	if err != nil || string(d.Value) != winner {
		t.Errorf("%s won, but the document is %q, %v", winner, d.Value, err)
	}
}

func testReplaceRace(t *testing.T, f *fixture) {
	rev := f.create(t, "doc", "0")
	for range 5 {
		winner := race(t, f, func(s document.Store, name string) error {
			_, err := s.Replace(t.Context(), "doc", []byte(name), rev)
			return err
		}, fault.Conflict)
		d, err := f.Get(t.Context(), "doc")
		if err != nil || string(d.Value) != winner {
			t.Fatalf("%s won, but the document is %q, %v", winner, d.Value, err)
		}
		rev = d.Revision
	}
}

func testDeleteRace(t *testing.T, f *fixture) {
	rev := f.create(t, "doc", "0")
	race(t, f, func(s document.Store, _ string) error {
		return s.Delete(t.Context(), "doc", rev)
	}, fault.NotFound, fault.Conflict)
	_, err := f.Get(t.Context(), "doc")
	wantKind(t, err, fault.NotFound, "get after the deletes")
}
