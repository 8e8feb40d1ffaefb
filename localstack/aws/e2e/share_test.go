package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	inference "rollout/localstack/fakellm"
	"rollout/shared/core/run"
	"rollout/shared/host"
)

// A run that is uploaded while another one has more than 200 shards in the queue has its
// first request before the other has had those of 15 s: a machine answers 20 a second, by
// 4 at once that take 200 ms each. The test counts requests, as a busy machine is slower.
func TestNewRunDoesNotWaitBehindTheQueueOfAnother(t *testing.T) {
	t.Parallel()
	answers, err := inference.New(inference.Config{Latency: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var large, small atomic.Int64
	var before atomic.Int64 // requests of the large run when the small one has its first
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		switch {
		case bytes.Contains(body, []byte("large run")):
			large.Add(1)
		case bytes.Contains(body, []byte("small run")):
			if small.Add(1) == 1 {
				before.Store(large.Load())
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		answers.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	a := open(t, llm{url: server.URL}, "max_machines = 1\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 1); err != nil {
		t.Fatal(err)
	}
	const shards = 220
	id := a.put("prompts/large.jsonl", promptsOf("large run", 8*shards))
	eventually(t, "the large run has more than 200 shards in the queue", func() bool {
		return large.Load() >= 40 && a.depth(host.WorkQueue(pool)) > 200
	})
	submitted := large.Load()
	other := a.put("prompts/small.jsonl", promptsOf("small run", 80))
	if o := a.awaitEnd(other); o.summary.Completed != 80 {
		t.Errorf("%d of 80 items of the small run are answered", o.summary.Completed)
	}
	if n := before.Load() - submitted; n > 300 {
		t.Errorf("the small run had its first request after %d of the large one, want at most those of 15 s: 300", n)
	}
	if p := a.phase(id); p != run.Running {
		t.Errorf("the large run is %s: the small one waited for it", p)
	}
}

// promptsOf returns n prompts of a run.
func promptsOf(name string, n int) string {
	var b strings.Builder
	for k := range n {
		fmt.Fprintf(&b, "{\"prompt\":\"%s %d\"}\n", name, k)
	}
	return b.String()
}
