package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/webhook"
)

// eventReceiver is a webhook's receiver, whose behaviour a test changes.
type eventReceiver struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	calls   int
	taken   []events.Envelope
	hang    chan struct{} // not nil: calls wait until it is closed, and take nothing
	loseOne bool          // the next event is taken, and its reply is lost
}

func receiveEvents(t *testing.T) *eventReceiver {
	t.Helper()
	r := &eventReceiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.release()
		r.Close()
	})
	return r
}

func (r *eventReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.calls++
	hang := r.hang
	r.mu.Unlock()
	if hang != nil {
		<-hang
		return
	}
	seconds, err := strconv.ParseInt(req.Header.Get(webhook.TimestampHeader), 10, 64)
	id := req.Header.Get(webhook.IDHeader)
	want := webhook.Sign([]byte("s3cr3t-webhook"), id, time.Unix(seconds, 0), body)
	e, _, decodeErr := events.Decode(body)
	if err != nil || decodeErr != nil || e.ID != id || req.Header.Get(webhook.SignatureHeader) != want {
		r.t.Errorf("got %s signed as %q, want %q: %v, %v", body, req.Header.Get(webhook.SignatureHeader), want, err,
			decodeErr)
	}
	r.mu.Lock()
	r.taken = append(r.taken, e)
	lose := r.loseOne
	r.loseOne = false
	r.mu.Unlock()
	if lose {
		panic(http.ErrAbortHandler)
	}
}

// hold lets calls wait, and release lets them and all later ones go on.
func (r *eventReceiver) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = make(chan struct{})
}

func (r *eventReceiver) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hang != nil {
		close(r.hang)
		r.hang = nil
	}
}

// of returns the types of a run's events in the order in which they came first, and how often
// any came.
func (r *eventReceiver) of(id identity.RunID) (types []string, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range r.taken {
		if e.Subject != string(id) {
			continue
		}
		all++
		if !seen[e.ID] {
			seen[e.ID] = true
			types = append(types, strings.TrimSuffix(strings.TrimPrefix(string(e.Type), "rollout.run."), ".v1"))
		}
	}
	return types, all
}

func (r *eventReceiver) called() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls > 0
}

// notifying is the config of an installation that posts events to an address.
func notifying(address string) string {
	return fmt.Sprintf("secrets = [\"webhook-key\"]\n"+defaultHealth+smallShards+
		"[notify]\nwebhook = %q\nsecret = \"webhook-key\"\ntimeout = \"1s\"\n", address)
}

// A run ends while its receiver does not answer. The installation is killed while it waits for
// the receiver, and started again: then the event arrives, though the first reply is lost.
func TestEventsArriveAfterAKillBetweenTheEndAndTheDelivery(t *testing.T) {
	t.Parallel()
	s, r := serveSlowly(t, time.Millisecond), receiveEvents(t)
	r.hold()
	i := install(t, s.url, 1, notifying(r.URL))
	id := i.submit(promptsFile(t, scenarios.MixedPrompts(40)))
	i.awaitEnd(id)
	eventually(t, "the receiver is called", r.called)
	i.up.killGroup()
	r.mu.Lock()
	r.loseOne = true
	r.mu.Unlock()
	r.release()
	i.start()
	eventually(t, "the end is told twice, because the first reply was lost", func() bool {
		_, all := r.of(id)
		return all >= 2
	})
	if types, _ := r.of(id); !slices.Equal(types, []string{"completed"}) {
		t.Errorf("told: %v", types)
	}
	eventually(t, "the status tells of no event that waits", func() bool {
		st, _ := i.show(id)
		return st.Undelivered == nil
	})
}

func TestPausesAndEndsAreToldInOrder(t *testing.T) {
	t.Parallel()
	s, r := serveSlowly(t, 30*time.Millisecond), receiveEvents(t)
	i := install(t, s.url, 0, notifying(r.URL))
	id := i.submit(promptsFile(t, scenarios.MixedPrompts(160)))
	eventually(t, "the run is under way", func() bool { return s.requests() > 10 })
	i.control("pause", id)
	i.await(id, run.Paused, run.Interrupted)
	eventually(t, "the pause is told", func() bool { types, _ := r.of(id); return len(types) > 0 })
	i.control("resume", id)
	i.awaitEnd(id)
	eventually(t, "the end is told", func() bool { types, _ := r.of(id); return len(types) > 1 })
	if types, _ := r.of(id); !slices.Equal(types, []string{"paused", "completed"}) {
		t.Errorf("told: %v", types)
	}
}

// With --once the events of the last run are delivered before the process ends.
func TestOnceDeliversBeforeItEnds(t *testing.T) {
	t.Parallel()
	r, dir := receiveEvents(t), t.TempDir()
	write(t, filepath.Join(dir, "rollout.toml"), "schema_version = 1\n"+notifying(r.URL))
	write(t, filepath.Join(dir, "bucket/prompts/x.jsonl"), simplePrompts(60))
	do(t, 0, "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off")
	runs, err := os.ReadDir(filepath.Join(dir, "bucket/runs"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%v, %v", runs, err)
	}
	if types, _ := r.of(identity.RunID(runs[0].Name())); !slices.Equal(types, []string{"completed"}) {
		t.Errorf("told: %v", types)
	}
	p := do(t, 0, "notify", "--dir", dir)
	if types, _ := r.of("notify/test"); len(types) != 1 || !strings.Contains(p.stdoutText(), "has taken the test event") {
		t.Errorf("the test event: %v, %s", types, p.stdoutText())
	}
}
