package balancer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// breakDown breaks the requests in flight and answers everything with a 500 from then
// on, as a server does whose engine process has died.
func (s *fake) breakDown() {
	s.set(func() { s.fails, s.takes = true, 0 })
	s.breakConnections()
}

// A server that fails for all requests may die seconds later. The faults of requests
// that were in flight at its first failure are held until that is known.
func TestFaultsAreHeldUntilItIsKnownWhetherTheServerDies(t *testing.T) {
	t.Parallel()
	restarts := func(s *fake) { s.set(func() { s.starts, s.fails = 2, false }) }
	for name, c := range map[string]struct {
		then    func(s *fake)
		servers int
		crashes bool
		within  time.Duration
	}{
		"its port closes":          {func(s *fake) { s.crash() }, 1, true, 8 * time.Second},
		"it restarts":              {restarts, 1, true, 8 * time.Second},
		"it answers again":         {func(s *fake) { s.set(func() { s.fails = false }) }, 1, false, 8 * time.Second},
		"it goes on failing":       {func(*fake) {}, 1, false, 13 * time.Second},
		"its port closes, of two":  {func(s *fake) { s.crash() }, 2, true, 8 * time.Second},
		"it goes on, one of two":   {func(*fake) {}, 2, false, 11 * time.Second},
		"it answers again, of two": {func(s *fake) { s.set(func() { s.fails = false }) }, 2, false, 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, c.servers, func(f *fixture) {
				for range 2 * c.servers { // it has worked
					if _, err := f.ask("before"); err != nil {
						t.Fatal(err)
					}
				}
				s := f.servers[0]
				for _, s := range f.servers {
					s.set(func() { s.takes = time.Minute })
				}
				inFlight := f.askMany(4 * c.servers)
				time.Sleep(time.Second)
				begun := time.Now()
				s.breakDown()
				time.AfterFunc(5*time.Second, func() { c.then(s) })
				synctest.Wait()
				if c.servers == 1 {
					_, late := f.ask("late")
					if !fault.Is(late, fault.Unavailable) || crashOf(late) != nil {
						t.Errorf("a request after the first failure: %v", late)
					}
				}
				crashes, failed := 0, 0
				for _, err := range inFlight() {
					switch {
					case err == nil:
					case crashOf(err) != nil:
						crashes++
					case errors.Is(err, engine.ErrFailsForAll):
						failed++
					default:
						t.Errorf("%v", err)
					}
				}
				if crashes+failed != 4 || (crashes == 4) != c.crashes || (failed == 4) == c.crashes {
					t.Errorf("%d crashes, %d failures; want 4 crashes: %v", crashes, failed, c.crashes)
				}
				if took := time.Since(begun); c.servers == 1 && took > c.within {
					t.Errorf("it took %s, want at most %s", took, c.within)
				}
			})
		})
	}
}

// A server that was told to end may close its port and leave requests hanging. They are
// given up within seconds, unless the server shows signs of work on them.
func TestHungRequestsBehindAClosedPortAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ deaf, works, givenUp bool }{
		"the port is closed":                {true, false, true},
		"the port is open":                  {false, false, false},
		"the port is closed, answers go on": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(f *fixture) {
				s := f.servers[0]
				s.set(func() { s.deaf, s.hangs = c.deaf, true })
				ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
				defer cancel()
				if c.works {
					s.set(func() { s.hangs, s.takes, s.sign = false, 30*time.Second, time.Second })
				}
				begun := time.Now()
				_, err := f.balancer.Answer(ctx, engine.Request{Body: []byte("x")}, func() {})
				took := time.Since(begun)
				if given := took < 20*time.Second; given != c.givenUp || c.givenUp && !fault.Is(err, fault.Unavailable) {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}
