package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/grade"
	"rollout/shared/record"
)

// moodyService is a scoring service that is slow, wrong and dead at times. What it
// scores, it scores by trueReward.
type moodyService struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	denied   int // without the key
}

// trueReward is the score of an answer to the prompt with that number; false if
// the service has none.
func trueReward(n int, answer string) (float64, bool) {
	return float64(len(answer)%7) / 4, n%10 != 3
}

// crashes and refused are the prompts over which the service always fails.
const crashes, refused = 20, 41

func newMoodyService(t *testing.T) *moodyService {
	m := &moodyService{}
	m.Server = httptest.NewServer(http.HandlerFunc(m.score))
	t.Cleanup(m.Close)
	return m
}

func (m *moodyService) score(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	n := m.requests
	m.requests++
	if r.Header.Get("Authorization") != "Bearer "+rewardKey {
		m.denied++
	}
	m.mu.Unlock()
	var got struct {
		Items []struct {
			Prompt, Answer string
			Expected       int
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	scores := []any{}
	for _, it := range got.Items {
		switch it.Expected {
		case crashes:
			http.Error(w, "panic", http.StatusInternalServerError)
			return
		case refused:
			http.Error(w, "this one is not for us", http.StatusUnprocessableEntity)
			return
		}
		if s, ok := trueReward(it.Expected, it.Answer); ok {
			scores = append(scores, s)
		} else {
			scores = append(scores, nil)
		}
	}
	switch n % 18 { // every third request meets a mood
	case 1: // dead
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
		return
	case 4: // slow
		select {
		case <-time.After(10 * time.Second):
		case <-r.Context().Done():
		}
		return
	case 7: // wrong: a score is missing
		scores = scores[1:]
	case 10: // wrong: no number
		scores[0] = "1"
	case 13: // a proxy answers
		fmt.Fprint(w, "<html>please log in</html>")
		return
	case 16: // busy
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"scores": scores})
}

// graders are an exact grader of the row's own column, and the moody service.
func graders(url string) string {
	return fmt.Sprintf(`
[graders.reward]
url = %q
secret = "reward-key"
timeout = "1s"
retries = 3
batch = 8
[[grade]]
name = "digits"
kind = "regex"
pattern = '[0-9]'
[[grade]]
name = "reward"
kind = "http"
service = "reward"
expected = "number"
weight = 3
`, url)
}

// TestGradedBatchInventsNoScore answers prompts with a scoring service that is
// slow, wrong and dead at times, and kills the process once in the middle.
func TestGradedBatchInventsNoScore(t *testing.T) {
	t.Parallel()
	const items = 120
	service := newMoodyService(t)
	var prompts strings.Builder
	for i := range items {
		fmt.Fprintf(&prompts, "{\"id\":\"%03d\",\"prompt\":\"question %d\",\"number\":%d}\n", i, i, i)
	}
	b := newBatch(t, prompts.String(), serve(t, "--latency", "20ms").url,
		"[worker]\nin_flight = 8\n[shard]\nitems = 10\n"+graders(service.URL))
	first := b.infer("--events")
	eventually(t, "some rows have their scores", func() bool { return completed(first) >= 20 })
	first.kill()
	second := b.infer("--resume", b.runID())
	second.wantExit(0)
	if text := second.stdoutText() + tail(second.stderr); !strings.Contains(text, "digits 1, reward ") {
		t.Errorf("the closing screen shows no scores: %s", text)
	}

	var sum, scored, missing = 0.0, 0, 0
	lines := strings.Split(strings.TrimSpace(read(t, b.path("out/completions.jsonl"))), "\n")
	if len(lines) != items {
		t.Fatalf("%d rows, want %d", len(lines), items)
	}
	for i, line := range lines {
		var row struct {
			ID, Completion string
			Number         int
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		r, err := grade.ReadRow([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		want, has := trueReward(row.Number, row.Completion)
		got := r.Scores["reward"]
		switch {
		case row.Number != i:
			t.Errorf("row %d is that of %d", i, row.Number)
		case r.Scores["digits"].Score == nil || *r.Scores["digits"].Score != 1:
			t.Errorf("%s: digits has %+v, want 1", row.ID, r.Scores["digits"])
		case got.Score == nil:
			missing++
			wantCause(t, row.Number, got.Cause)
			if r.Score != nil {
				t.Errorf("%s has the score %v without a reward", row.ID, *r.Score)
			}
		case !has || i == crashes || i == refused || *got.Score != want:
			t.Errorf("%s: reward %v is invented; the service has %v, %v", row.ID, *got.Score, want, has)
		case r.Score == nil || *r.Score != (1+3*want)/4:
			t.Errorf("%s: score %v, want the weighted mean %v", row.ID, r.Score, (1+3*want)/4)
		default:
			sum += want
			scored++
		}
	}
	if scored < items/2 {
		t.Errorf("only %d of %d rows have a reward", scored, items)
	}
	var s record.Summary
	if err := json.Unmarshal([]byte(read(t, b.path("out/summary.json"))), &s); err != nil {
		t.Fatal(err)
	}
	reward := s.Scores["reward"]
	if int(reward.Scored) != scored || int(reward.Missing) != missing || reward.Mean == nil ||
		*reward.Mean < sum/float64(scored)-1e-9 || *reward.Mean > sum/float64(scored)+1e-9 {
		t.Errorf("the summary has %+v, want %d scored with the mean %v and %d missing",
			reward, scored, sum/float64(scored), missing)
	}
	if service.denied > 0 {
		t.Errorf("%d requests without the key", service.denied)
	}
	if text := tail(first.stderr); strings.Contains(text, rewardKey) {
		t.Errorf("the log has the key: %s", text)
	}
}

// wantCause checks why a row has no reward.
func wantCause(t *testing.T, n int, c grade.Cause) {
	t.Helper()
	ok := c == grade.Unavailable || c == grade.TimedOut || c == grade.Malformed
	switch _, has := trueReward(n, ""); {
	case n == refused:
		ok = ok || c == grade.Refused
	case !has:
		ok = ok || c == grade.Declined
	}
	if !ok {
		t.Errorf("item %d has no reward with the cause %q", n, c)
	}
}
