package servers

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// restarting is the part of a deployment's config for runs whose server ends and is
// started again.
const restarting = `
[worker]
in_flight = 16
checkpoint = "200ms"
progress_timeout = "10s"
`

// stopped is how long a server is stopped: longer than the worker waits for progress.
const stopped = 20 * time.Second

// A server that ends or stands still in the middle of a run, and is started again or
// goes on, delays the run. No item fails, and each has the answer of a run that nothing
// disturbed.
func TestDeathsOfTheServerOnlyDelayTheRun(t *testing.T) {
	c := underTest(t)
	r := serve(t, c.server, Options{})
	input := examples(t, 3)
	n := len(lines(input))
	want := begin(t, job{engine: r.URL, deployment: restarting, run: greedy, input: input}).outcome()
	want.wantComplete(t, n)
	for name, death := range map[string]struct {
		end      func() error
		restarts bool
		skip     bool
	}{
		"its engine is killed": {
			end:      func() error { return r.SignalEngine(syscall.SIGKILL) },
			restarts: true, skip: !c.server.HasEngine(),
		},
		"it is killed with all its processes": {
			end: func() error { return r.SignalAll(syscall.SIGKILL) }, restarts: true,
		},
		"it is told to end": {
			end: func() error { return r.Signal(syscall.SIGTERM) }, restarts: true,
		},
		"it is stopped, and killed later": {
			end:      func() error { return stopFor(stopped, r, syscall.SIGKILL) },
			restarts: true,
		},
		"it is stopped, and continued later": {
			end: func() error { return stopFor(stopped, r, syscall.SIGCONT) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if death.skip {
				t.Skip("the server is one process")
			}
			before := r.Starts()
			p := begin(t, job{engine: r.URL, deployment: restarting, run: greedy, input: input})
			p.awaitRows(uint64(n / 10))
			start := time.Now()
			if err := death.end(); err != nil {
				t.Fatal(err)
			}
			got := p.outcome()
			t.Logf("the run ended %s after that, with %d wasted tokens", time.Since(start).Round(time.Second),
				got.summary.WastedTokens)
			got.wantComplete(t, n)
			if restarted := r.Starts() > before; restarted != death.restarts {
				t.Errorf("the server was started again: %t, want %t", restarted, death.restarts)
			}
			if !slices.Equal(got.completions, want.completions) {
				t.Errorf("%d of %d answers are those of the undisturbed run; the first row that differs:\n%s",
					countEqual(t, want, got), n, firstDifference(got.completions, want.completions))
			}
		})
	}
}

// firstDifference returns the first of the rows that differ, and what it should be.
func firstDifference(got, want []string) string {
	for i, row := range got {
		if row != want[i] {
			return row + "\nwant\n" + want[i]
		}
	}
	return ""
}

// stopFor stops all processes of the server for a time, and then sends them a signal.
func stopFor(d time.Duration, r *Running, then syscall.Signal) error {
	if err := r.SignalAll(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d) // the server stands still for this long: it is the case
	return r.SignalAll(then)
}
