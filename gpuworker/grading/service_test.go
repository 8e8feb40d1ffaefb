package grading

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/gradetest"
	"rollout/shared/secret"
)

const key = "hunter2-reward"

// secrets is a store with one secret.
type secrets struct{}

func (secrets) Get(_ context.Context, name string) (secret.Value, error) {
	if name != "reward-key" {
		return secret.Value{}, fault.New(fault.NotFound, "no secret %s", name)
	}
	return secret.NewValue(key), nil
}

// reply is how the scripted service answers a request.
type reply func(r request, req *http.Request) (*http.Response, error)

// scripted is a transport: a scoring service whose n-th request gets the n-th
// reply, and every further one the last.
type scripted struct {
	mu       sync.Mutex
	replies  []reply
	requests []request
	headers  []http.Header
	at       []time.Time
}

func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var r request
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	n := min(len(s.requests), len(s.replies)-1)
	s.requests = append(s.requests, r)
	s.headers = append(s.headers, req.Header)
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	return s.replies[n](r, req)
}

// honest scores 1 for the answer "right", and has no score for "unclear".
func honest(r request, _ *http.Request) (*http.Response, error) {
	var scores []string
	for _, it := range r.Items {
		scores = append(scores, map[string]string{"right": "1", "unclear": "null"}[it.Answer])
		if scores[len(scores)-1] == "" {
			scores[len(scores)-1] = "0"
		}
	}
	return respond(200, `{"scores":[`+strings.Join(scores, ",")+`]}`), nil
}

func respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body))}
}

func says(status int, body string) reply {
	return func(request, *http.Request) (*http.Response, error) { return respond(status, body), nil }
}

func dies(request, *http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

func hangs(_ request, req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// slow is honest after d.
func slow(d time.Duration) reply {
	return func(r request, req *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return honest(r, req)
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// unlessHas is honest, and gives the other reply to requests with that answer.
func unlessHas(answer string, other reply) reply {
	return func(r request, req *http.Request) (*http.Response, error) {
		if slices.ContainsFunc(r.Items, func(it item) bool { return it.Answer == answer }) {
			return other(r, req)
		}
		return honest(r, req)
	}
}

func asking(later string) reply {
	return func(request, *http.Request) (*http.Response, error) {
		r := respond(429, "")
		r.Header.Set("Retry-After", later)
		return r, nil
	}
}

func settings(edit ...func(*config.GraderService)) config.GraderService {
	c := config.DefaultGraderService()
	c.URL = "http://reward.test/score"
	for _, f := range edit {
		f(&c)
	}
	return c
}

// connect returns the service behind the scripted transport.
func connect(t *testing.T, s *scripted, log io.Writer, edit ...func(*config.GraderService)) *service {
	t.Helper()
	all, err := Connect(t.Context(), map[string]config.GraderService{"reward": settings(edit...)}, Options{
		Secrets: secrets{}, Log: slog.New(slog.NewTextHandler(log, nil)), HTTPClient: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return all.byName["reward"]
}

func cases(answers ...string) (out []grade.Case) {
	for i, a := range answers {
		out = append(out, grade.Case{ID: fmt.Sprint("id-", i), Prompt: json.RawMessage(`"2+2?"`), Answer: a})
	}
	return out
}

func score(x float64) grade.Score { return grade.Score{Value: x} }

// TestServiceFaultsAreNoScores has a script of the service a row, the answers, and
// what comes of them. All of them are sent in one batch.
func TestServiceFaultsAreNoScores(t *testing.T) {
	t.Parallel()
	retries := func(n int) func(*config.GraderService) { return func(c *config.GraderService) { c.Retries = n } }
	three := []string{"right", "bad", "wrong"}
	missing := func(c grade.Cause) []grade.Score {
		return []grade.Score{grade.Missing(c), grade.Missing(c), grade.Missing(c)}
	}
	all := []grade.Score{score(1), score(0), score(0)}
	only := func(c grade.Cause) []grade.Score { return []grade.Score{score(1), grade.Missing(c), score(0)} }
	for name, c := range map[string]struct {
		script   []reply
		want     []grade.Score
		requests int
	}{
		"it answers":                        {[]reply{honest}, all, 1},
		"it is down at first":               {[]reply{dies, dies, honest}, all, 3},
		"it stays down":                     {[]reply{dies}, missing(grade.Unavailable), 4},
		"it hangs at first":                 {[]reply{hangs, honest}, all, 2},
		"it hangs for ever":                 {[]reply{hangs}, missing(grade.TimedOut), 4},
		"it is slow":                        {[]reply{slow(29 * time.Second)}, all, 1},
		"it is too slow":                    {[]reply{slow(31 * time.Second)}, missing(grade.TimedOut), 4},
		"it is busy at first":               {[]reply{says(503, ""), says(429, ""), honest}, all, 3},
		"it stays busy":                     {[]reply{says(503, "")}, missing(grade.Unavailable), 4},
		"it crashes over one answer":        {[]reply{unlessHas("bad", says(500, "trace"))}, only(grade.Unavailable), 4 + 5},
		"it refuses one answer":             {[]reply{unlessHas("bad", says(422, "empty"))}, only(grade.Refused), 1 + 3},
		"it refuses the key":                {[]reply{says(401, "")}, missing(grade.Refused), 1},
		"it is not there":                   {[]reply{says(404, "")}, missing(grade.Refused), 1},
		"it redirects":                      {[]reply{says(302, "")}, missing(grade.Refused), 1},
		"a proxy answers at first":          {[]reply{says(200, "<html>"), honest}, all, 2},
		"a proxy answers":                   {[]reply{says(200, "<html>")}, missing(grade.Malformed), 4 + 9},
		"too few scores":                    {[]reply{says(200, `{"scores":[1,1]}`)}, missing(grade.Malformed), 4 + 9},
		"too many scores":                   {[]reply{says(200, `{"scores":[1,1,1,1]}`)}, missing(grade.Malformed), 4 + 9},
		"no scores":                         {[]reply{says(200, `{}`)}, missing(grade.Malformed), 4 + 9},
		"a text among the scores":           {[]reply{says(200, `{"scores":[1,"1",0]}`)}, missing(grade.Malformed), 4 + 9},
		"a boolean among the scores":        {[]reply{says(200, `{"scores":[1,true,0]}`)}, missing(grade.Malformed), 4 + 9},
		"an infinite score":                 {[]reply{says(200, `{"scores":[1,1e999,0]}`)}, missing(grade.Malformed), 4 + 9},
		"a huge score":                      {[]reply{says(200, `{"scores":[1,1e16,0]}`)}, missing(grade.Malformed), 4 + 9},
		"a response without end":            {[]reply{says(200, strings.Repeat(" ", 1e6))}, missing(grade.Malformed), 4 + 9},
		"malformed over one answer":         {[]reply{unlessHas("bad", says(200, "{"))}, only(grade.Malformed), 4 + 5},
		"another fault at last":             {[]reply{dies, dies, dies, says(200, "")}, missing(grade.Malformed), 4 + 9},
		"down, then it refuses one of them": {[]reply{dies, unlessHas("bad", says(400, ""))}, only(grade.Refused), 2 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{replies: c.script}
				service := connect(t, s, io.Discard, retries(3))
				service.active = service.cfg.Concurrency // nothing is sent before all are queued
				done := make(chan []grade.Score)
				go func() { done <- service.Grade(t.Context(), cases(three...)) }()
				synctest.Wait()
				service.work()
				if got := <-done; !slices.Equal(got, c.want) || len(s.requests) != c.requests {
					t.Errorf("%v in %d requests, want %v in %d", got, len(s.requests), c.want, c.requests)
				}
			})
		})
	}
}

func TestServiceMayHaveNoScore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := connect(t, &scripted{replies: []reply{honest}}, io.Discard).Grade(t.Context(), cases("unclear", "right"))
		if want := []grade.Score{grade.Missing(grade.Declined), score(1)}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// TestServicesKeepThePort uses a real server.
func TestServicesKeepThePort(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var r request
		if err := json.NewDecoder(req.Body).Decode(&r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		resp, _ := honest(r, req)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(server.Close)
	all, err := Connect(t.Context(), map[string]config.GraderService{"reward": settings(func(c *config.GraderService) {
		c.URL = server.URL
		c.Batch = 3
	})}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	two := cases("right", "wrong")
	gradetest.Run(t, gradetest.Fixture{Grader: all.byName["reward"], Right: two[0], Wrong: two[1]})
}

func TestAnswersWaitForTheirScoreAtMostMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		service := connect(t, &scripted{replies: []reply{dies}}, io.Discard, func(c *config.GraderService) {
			c.Retries, c.MaxWait, c.Timeout = 100, config.Duration(40*time.Second), config.Duration(time.Second)
		})
		got := service.Grade(t.Context(), cases("right"))
		if took := time.Since(began); took != 40*time.Second || got[0] != grade.Missing(grade.Unavailable) {
			t.Errorf("%v after %s, want the last cause after 40s", got, took)
		}
	})
}

func TestEndOfContextEndsTheWaitAndTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		ended := make(chan time.Duration, 1)
		began := time.Now()
		watched := func(r request, req *http.Request) (*http.Response, error) {
			resp, err := hangs(r, req)
			ended <- time.Since(began)
			return resp, err
		}
		service := connect(t, &scripted{replies: []reply{watched}}, io.Discard)
		if got := service.Grade(ctx, cases("right")); got[0] != grade.Missing(grade.Stopped) {
			t.Errorf("%v, want the cause %s", got, grade.Stopped)
		}
		if took := <-ended; took != 3*time.Second {
			t.Errorf("the request ended after %s, want 3s: nothing waits for it any more", took)
		}
	})
}

func TestRetriesBackOffAndFollowTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{replies: []reply{dies, dies, dies, asking("20"), asking("never"), honest}}
		connect(t, s, io.Discard).Grade(t.Context(), cases("right"))
		for i, limits := range [][2]time.Duration{ // of the waits between requests
			{250 * time.Millisecond, 500 * time.Millisecond}, {500 * time.Millisecond, time.Second},
			{time.Second, 2 * time.Second}, {20 * time.Second, 20 * time.Second}, {4 * time.Second, 8 * time.Second},
		} {
			if wait := s.at[i+1].Sub(s.at[i]); wait < limits[0] || wait > limits[1] {
				t.Errorf("waited %s before request %d, want between %s and %s", wait, i+2, limits[0], limits[1])
			}
		}
	})
}

func TestAnswersAreSentInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{replies: []reply{slow(time.Second)}}
		service := connect(t, s, io.Discard, func(c *config.GraderService) { c.Batch, c.Concurrency = 4, 2 })
		began := time.Now()
		service.Grade(t.Context(), cases(slices.Repeat([]string{"right"}, 34)...))
		// The first two requests have what was there when they began; the other 32
		// answers at most fill eight requests, two at a time.
		if took := time.Since(began); took > 6*time.Second || len(s.requests) > 11 {
			t.Errorf("%d requests in %s, want at most 11 in 6s", len(s.requests), took)
		}
		for _, r := range s.requests {
			if len(r.Items) > 4 {
				t.Errorf("a request with %d answers, want at most 4", len(r.Items))
			}
		}
	})
}

func TestItemsWaitWhileTheQueueIsLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		held := func(r request, req *http.Request) (*http.Response, error) { <-release; return honest(r, req) }
		one := connect(t, &scripted{replies: []reply{held}}, io.Discard, func(c *config.GraderService) {
			c.Batch, c.Concurrency = 2, 1
		})
		g := &Graders{services: []*service{one}}
		never := make(chan struct{})
		if !g.AwaitRoom(t.Context(), never) {
			t.Fatal("no room with an empty queue")
		}
		done := make(chan []grade.Score)
		go func() { done <- one.Grade(t.Context(), cases(slices.Repeat([]string{"right"}, 9)...)) }()
		synctest.Wait()
		stopping := make(chan struct{})
		close(stopping)
		if g.AwaitRoom(t.Context(), stopping) {
			t.Error("room with a long queue")
		}
		go func() { close(release) }()
		if !g.AwaitRoom(t.Context(), never) {
			t.Error("no room after the queue was served")
		}
		<-done
	})
}

// TestRequestsHaveTheDocumentedForm covers what a service gets.
func TestRequestsHaveTheDocumentedForm(t *testing.T) {
	t.Parallel()
	got, err := encode([]grade.Case{
		{ID: "1", Prompt: json.RawMessage(`"2+2?"`), Answer: "4", Expected: json.RawMessage(`{"value":4}`)},
		{ID: "2", Prompt: json.RawMessage(`[{"role":"user","content":"Hi"}]`), Answer: "Hello"}})
	want := `{"items":[{"id":"1","prompt":"2+2?","answer":"4","expected":{"value":4}},` +
		`{"id":"2","messages":[{"role":"user","content":"Hi"}],"answer":"Hello"}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}

func TestKeyIsSentAndNeverLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &scripted{replies: []reply{says(403, "the key "+key+" is wrong")}}
		connect(t, s, &log, func(c *config.GraderService) { c.Secret = "reward-key" }).Grade(t.Context(), cases("right"))
		if got := s.headers[0].Get("Authorization"); got != "Bearer "+key {
			t.Errorf("Authorization: %q", got)
		}
		if text := log.String(); strings.Contains(text, key) || !strings.Contains(text, "is wrong") {
			t.Errorf("the log has %q, want the service's words without the key", text)
		}
	})
}

// TestKeyIsConcealedBeforeTheResponseIsShortened has the key across the end of what is
// logged of a response.
func TestKeyIsConcealedBeforeTheResponseIsShortened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &scripted{replies: []reply{says(403, strings.Repeat(".", 190)+key)}}
		connect(t, s, &log, func(c *config.GraderService) { c.Secret = "reward-key" }).Grade(t.Context(), cases("right"))
		if text := log.String(); strings.Contains(text, key[:4]) || !strings.Contains(text, "....") {
			t.Errorf("the log has %q, want the service's words without a part of the key", text)
		}
	})
}

func TestConnectNeedsTheSecret(t *testing.T) {
	t.Parallel()
	configs := map[string]config.GraderService{"reward": {Secret: "other"}}
	_, err := Connect(t.Context(), configs, Options{Secrets: secrets{}})
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "scoring service reward") {
		t.Errorf("%v, want that the secret of the service is not found", err)
	}
}
