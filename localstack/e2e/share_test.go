package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	inference "rollout/localstack/fakellm"
	"rollout/shared/config"
	"rollout/shared/core/identity"
)

// countingServer is an inference server of 50 ms that counts the requests of each run: the
// first word of a prompt names its run.
type countingServer struct {
	*httptest.Server
	mu    sync.Mutex
	order []string // the run of each request, in the order of their arrival
}

func serveCounting(t *testing.T) *countingServer {
	t.Helper()
	answers, err := inference.New(inference.Config{Latency: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := &countingServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		if _, prompt, ok := bytes.Cut(body, []byte(`"prompt":"`)); ok {
			run, _, _ := strings.Cut(string(prompt), " ")
			s.mu.Lock()
			s.order = append(s.order, run)
			s.mu.Unlock()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answers.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// since returns the runs of the requests from the n-th on.
func (s *countingServer) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order[min(n, len(s.order)):]
}

// counts returns how many requests each run has among those.
func counts(requests []string) map[string]int {
	out := map[string]int{}
	for _, run := range requests {
		out[run]++
	}
	return out
}

// sharedPool is for runs that share two workers of 8 requests each.
const sharedPool = patientHealth + `
[worker]
in_flight = 8

[defaults]
schema_version = 1
kind = "batch"
[defaults.shard]
items = 64
[defaults.limits]
grace = "500ms"
`

// submitRun submits a run of n prompts that begin with its name, with that priority.
func (i *testInstallation) submitRun(name string, n int, priority any) identity.RunID {
	i.t.Helper()
	var prompts strings.Builder
	for k := range n {
		fmt.Fprintf(&prompts, "{\"prompt\":\"%s %d\"}\n", name, k)
	}
	dir := i.t.TempDir()
	write(i.t, filepath.Join(dir, name+".toml"),
		fmt.Sprintf("schema_version = 1\n[shard]\nitems = 64\n[run]\npriority = %v\n", priority))
	return i.submit(write(i.t, filepath.Join(dir, name+".jsonl"), prompts.String()))
}

// Five runs divide the requests of two workers by their weights. The test counts what the
// server sees, and not the time.
func TestFiveRunsShareTheRequestsByWeight(t *testing.T) {
	t.Parallel()
	s := serveCounting(t)
	i := install(t, s.URL+"/v1", 2, sharedPool)
	weights := map[string]int{"a": 1, "b": 1, "c": 2, "d": 4, "e": 8}
	var ids []identity.RunID
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		ids = append(ids, i.submitRun(name, 1000*weights[name]+1000, weights[name]))
	}
	begun := 0
	eventually(t, "all runs have requests", func() bool {
		begun = len(s.since(0))
		return len(counts(s.since(0))) == len(weights) && counts(s.since(0))["e"] > 400
	})
	const counted = 3200
	eventually(t, "the server has seen enough", func() bool { return len(s.since(begun)) >= counted })
	got := counts(s.since(begun)[:counted])
	for name, w := range weights {
		want := counted * w / 16
		// A run that one of the two workers gives nothing has half of its part.
		if got[name] < want*75/100 || got[name] > want*125/100 {
			t.Errorf("run %s of weight %d has %d of %d requests, want about %d (all: %v)",
				name, w, got[name], counted, want, got)
		}
	}
	for _, id := range ids {
		sh, _ := i.show(id)
		if len(sh.Shares) != 1 || sh.Shares[0].Runs != len(weights) || sh.Shares[0].Total != 16 {
			t.Errorf("run %s: %s, shares %+v", id, sh.Phase, sh.Shares)
		}
	}
	for _, id := range ids {
		i.control("stop", id)
		i.awaitEnd(id)
	}
}

// A small run that is submitted second does not wait for the large one. Until it is done,
// the large one gets about as many requests as it has itself and, if the small one has a
// high priority, far fewer.
func TestSmallRunDoesNotWaitBehindALargeOne(t *testing.T) {
	t.Parallel()
	s := serveCounting(t)
	i := install(t, s.URL+"/v1", 2, sharedPool)
	large := i.submitRun("large", 40_000, `"normal"`)
	eventually(t, "the large run is busy", func() bool { return len(s.since(0)) > 200 })
	for _, c := range []struct {
		name, priority string
		most           int // requests of the large run while the small one is answered
	}{{"normal", `"normal"`, 2000}, {"high", `"high"`, 1000}} {
		const items = 800
		submitted := len(s.since(0))
		id := i.submitRun(c.name, items, c.priority)
		i.awaitEnd(id)
		if o := i.outcome(id); o.Summary.Completed != items {
			t.Errorf("%s: %d of %d items are answered", c.name, o.Summary.Completed, items)
		}
		first, last := -1, 0
		requests := s.since(submitted)
		for n, run := range requests {
			if run == c.name {
				if last = n; first < 0 {
					first = n
				}
			}
		}
		if others := last + 1 - first - items; others > c.most {
			t.Errorf("%s: the large run has %d requests from the first to the last of %d of the small one, want at most %d",
				c.name, others, items, c.most)
		}
	}
	sh, _ := i.show(large)
	if sh.Phase.Ended() || config.PriorityName(sh.Shares[0].PriorityWeight) != "normal" || sh.Shares[0].Fraction != 1 {
		t.Errorf("the large run is %s, shares %+v", sh.Phase, sh.Shares)
	}
	i.control("stop", large)
	i.awaitEnd(large)
}
