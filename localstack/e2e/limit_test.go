package e2e

import (
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
)

// perMinute is the limit of the pool in these tests, and manyPrompts is more than a
// minute's worth.
const (
	perMinute   = 120
	manyPrompts = 150
	limitedPool = patientHealth + smallShards + `
[[pool]]
name = "default"
model = "fake"
requests_per_minute = 120
`
)

var (
	limitedTotal = regexp.MustCompile(`(?m)^fakellm_limited_total\S* (\d+)$`)
	maxMinute    = regexp.MustCompile(`(?m)^fakellm_max_minute\S* (\d+)$`)
)

// Two worker processes ask a server that refuses what exceeds its limit, as hosted
// APIs do. It has nothing to refuse, and both work at the limit.
func TestWorkersKeepToTheLimitOfAServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--minute-limit", "120")
	i := install(t, s.url, 2, limitedPool)
	id := i.submit(promptsFile(t, simplePrompts(manyPrompts)))
	eventually(t, "the run is said to be limited", func() bool {
		r, _ := i.show(id)
		return slices.ContainsFunc(r.Blockers, func(b status.Blocker) bool {
			return b.Code == diagnosis.Limited && strings.HasPrefix(b.Text, "limited to 120 requests a minute")
		})
	})
	asked := map[string]int64{} // rows by worker
	eventually(t, "the run ends", func() bool {
		for _, w := range i.allWorkers() {
			asked[w.Worker] = w.Load.Rows
		}
		r, _ := i.show(id)
		return r.Phase.Ended()
	})
	if o := i.outcome(id); o.Summary.Completed != manyPrompts {
		t.Errorf("%d of %d items are answered", o.Summary.Completed, manyPrompts)
	}
	if n := s.metric(limitedTotal); n > 0 {
		t.Errorf("the server refused %d requests", n)
	}
	if n := s.requests(); n != manyPrompts {
		t.Errorf("%d requests for %d items", n, manyPrompts)
	}
	if n := s.metric(maxMinute); n < perMinute*3/4 {
		t.Errorf("at most %d requests within a minute, although %d are allowed", n, perMinute)
	}
	if len(asked) != 2 {
		t.Fatalf("%d workers, want 2", len(asked))
	}
	for w, n := range asked {
		if n < manyPrompts/5 {
			t.Errorf("worker %s answered %d of %d items", w, n, manyPrompts)
		}
	}
}

// Two worker processes learn the limit of a server from its headers, and share it.
func TestWorkersLearnTheLimitOfAServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--minute-limit", "240", "--limit-headers")
	i := install(t, s.url, 2, patientHealth+smallShards)
	id := i.submit(promptsFile(t, simplePrompts(80)))
	eventually(t, "the run is said to be limited as the server states", func() bool {
		r, _ := i.show(id)
		return slices.ContainsFunc(r.Blockers, func(b status.Blocker) bool {
			return strings.HasPrefix(b.Text, "limited to 240 requests a minute (as the server states)")
		})
	})
	i.awaitEnd(id)
	if o := i.outcome(id); o.Summary.Completed != 80 {
		t.Errorf("%d of %d items are answered", o.Summary.Completed, 80)
	}
	if n := s.metric(limitedTotal); n > 0 {
		t.Errorf("the server refused %d requests", n)
	}
}

// A worker that is killed takes its share with it only until that expires.
func TestKilledWorkersShareOfALimitGoesToOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, "--minute-limit", "10000") // counts only
	i := install(t, s.url, 2, strings.Replace(limitedPool, patientHealth, "", 1))
	id := i.submit(promptsFile(t, simplePrompts(manyPrompts)))
	eventually(t, "both workers have answered items", func() bool {
		a, b, ok := i.twoBusy()
		if !ok || a.Load.Rows < 5 || b.Load.Rows < 5 {
			return false
		}
		return syscall.Kill(a.PID, syscall.SIGKILL) == nil
	})
	i.awaitEnd(id)
	if o := i.outcome(id); o.Summary.Completed != manyPrompts {
		t.Errorf("%d of %d items are answered", o.Summary.Completed, manyPrompts)
	}
	// The killed worker had half of the limit.
	if n := s.metric(maxMinute); n > perMinute+perMinute/2 {
		t.Errorf("%d requests within a minute, %d are allowed", n, perMinute)
	}
}
