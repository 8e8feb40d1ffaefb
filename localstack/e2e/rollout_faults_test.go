package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rollout/localstack/clerk"
	fake "rollout/localstack/fakellm"
	"rollout/shared/core/run"
	"rollout/shared/record"
	files "rollout/shared/rollout"
)

// TestLostAnswersAreAskedAgainAlone runs a rollout over a server that refuses one request
// in twenty as overloaded. Only what was refused is asked again, not the other answers of
// its ticket: at most 6 % more requests are sent than there are answers, comparisons apart.
func TestLostAnswersAreAskedAgainAlone(t *testing.T) {
	t.Parallel()
	const tickets, members = 150, 8
	s := serveBusily(t, 20)
	i := install(t, s.URL, 2, "")
	dir := t.TempDir()
	config := strings.NewReplacer("samples = 4", "samples = 8", "[reflection]\nbatch_size = 16\ncandidates = 2\n", "",
		"[gate]\nshare = 0.4\nholdout_share = 0.15\ntickets = 80\n", "", "epochs = 3\n", "").
		Replace(read(t, filepath.Join("..", "..", "examples", "refunds.toml")))
	write(t, filepath.Join(dir, "refunds.toml"), config)
	all := strings.SplitAfter(read(t, filepath.Join("..", "..", "examples", "refunds.jsonl")), "\n")
	id := i.submit(write(t, filepath.Join(dir, "refunds.jsonl"), strings.Join(all[:tickets], "")))
	if end := i.awaitEnd(id); end.Phase != run.Completed {
		t.Errorf("it ended as %s", end.Phase)
	}
	s.wantFewRepeated(t, tickets*members)
	rows := lines(t, read(t, i.bucket(record.OutputKey(id, files.SelectionsFile))))
	for _, l := range rows {
		var row struct {
			Members int
			Failed  map[string]int
		}
		if err := json.Unmarshal([]byte(l), &row); err != nil {
			t.Fatal(err)
		}
		if row.Members != members || len(row.Failed) > 0 {
			t.Errorf("a group is not complete: %s", l)
		}
	}
	if len(rows) != tickets {
		t.Errorf("%d tickets have a selection", len(rows))
	}
}

// busyServer refuses every n-th request of an item as overloaded and passes the others on.
// A worker's questions of its own after a refusal, which have no seed, do not count: how
// many there are depends on how busy the machine is.
type busyServer struct {
	*httptest.Server
	next  http.Handler
	every int

	mu       sync.Mutex
	asked    int
	answered map[string]int // by body
}

func serveBusily(t *testing.T, every int) *busyServer {
	t.Helper()
	model, err := fake.New(fake.Config{Script: clerk.Answer})
	if err != nil {
		t.Fatal(err)
	}
	s := &busyServer{next: model, every: every, answered: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *busyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if bytes.Contains(body, []byte(`"seed":`)) && !s.admit(body) {
		w.Header().Set("Retry-After", "0.1")
		http.Error(w, `{"error":{"message":"the server is overloaded"}}`, http.StatusServiceUnavailable)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.next.ServeHTTP(w, r)
}

// admit counts a request of an item. It returns whether the request is to be answered.
func (s *busyServer) admit(body []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.asked%s.every == 0 {
		return false
	}
	s.answered[string(body)]++
	return true
}

// wantFewRepeated checks how many requests it took. One that was answered comes again only
// as a comparison, by which a worker finds out whether a refusal is the server's or an
// item's: at most one for each refusal.
func (s *busyServer) wantFewRepeated(t *testing.T, answers int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	comparisons := 0
	for _, n := range s.answered {
		comparisons += n - 1
	}
	if refused := s.asked / s.every; comparisons > refused {
		t.Errorf("%d comparisons after %d refusals", comparisons, refused)
	}
	if len(s.answered) != answers || float64(s.asked-comparisons) > 1.06*float64(answers) {
		t.Errorf("%d requests, of which %d were comparisons, for %d of %d answers",
			s.asked, comparisons, len(s.answered), answers)
	}
}
