package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// maxBody is the most that an answer of the API has, in bytes.
const maxBody = 64 << 10

// get asks a handler without a token, and decodes its answer.
func get(t *testing.T, h http.Handler, path string, into any, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	q := request{method: http.MethodGet, path: path, header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		q.header.Set(header[i], header[i+1])
	}
	w := ask(t, h, q)
	if w.Body.Len() > maxBody {
		t.Errorf("GET %s answers %d bytes", path, w.Body.Len())
	}
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK {
			t.Fatalf("GET %s: %d %.300s %v", path, w.Code, w.Body, err)
		}
	}
	return w
}

// runsPage is what the tests read of a page of runs.
type runsPage struct {
	Runs  []status.Status
	More  *int
	Next  *identity.RunID
	Ended int
}

// walk follows the pages of runs to their end, and returns all runs in the order of the pages.
func walk(t *testing.T, h http.Handler, query string) (ids []identity.RunID, pages int) {
	t.Helper()
	for after := ""; ; pages++ {
		var p runsPage
		get(t, h, "/v1/runs?"+query+after, &p)
		for _, r := range p.Runs {
			ids = append(ids, r.Run)
		}
		if p.Next == nil {
			return ids, pages + 1
		}
		if pages > 1000 {
			t.Fatal("the pages do not end")
		}
		after = "&after=" + string(*p.Next)
	}
}

func TestPagesOfRunsHaveEachRunOnce(t *testing.T) {
	t.Parallel()
	for name, indexed := range map[string]bool{"with the index": true, "before the index is built": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.endedRuns(120)
			open := []identity.RunID{runA, runB}
			for i, id := range open {
				d.submitted(id, run.Running)
				m := statustest.Manifest(id)
				m.CreatedAt = noon.Add(-time.Duration(i) * time.Hour)
				d.save(record.ManifestKey(id), m)
				d.save(record.OpenRunKey(id), record.NamedRun{Schema: 1, Run: id})
			}
			if !indexed {
				d.save(record.RunIndexKey, record.RunIndex{Schema: 1, Ended: 120})
			}
			h := d.Handler(secret.Value{}, d.probes())
			for _, limit := range []int{9, 100, 1000} {
				ids, pages := walk(t, h, fmt.Sprint("limit=", limit))
				if got := slices.Clone(ids); len(slices.Compact(slices.Sorted(slices.Values(got)))) != 122 || len(ids) != 122 {
					t.Fatalf("limit %d: %d runs on %d pages", limit, len(ids), pages)
				}
				if !slices.Equal(ids[:2], open) || ids[2] != endedID(119) {
					t.Errorf("limit %d: the first are %v", limit, ids[:3])
				}
			}
			if ids, _ := walk(t, h, "phase=running&limit=1"); !slices.Equal(ids, open) {
				t.Errorf("the running ones are %v", ids)
			}
			var p runsPage
			get(t, h, "/v1/runs?limit=10", &p)
			if p.Ended != 120 || p.More == nil || *p.More != 112 {
				t.Errorf("the first page says %d ended, %v more", p.Ended, p.More)
			}
			for _, bad := range []string{"limit=0", "limit=x", "after=x", "since=yesterday"} {
				if w := get(t, h, "/v1/runs?"+bad, nil); w.Code != http.StatusBadRequest {
					t.Errorf("%s answers %d", bad, w.Code)
				}
			}
		})
	}
}

// A run that ends while a page is made, and one whose entry among the open runs is left behind, is
// among the open and the ended ones.
func TestRunThatHasJustEndedIsOnAPageOnce(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.endedRuns(3)
	d.save(record.OpenRunKey(endedID(1)), record.NamedRun{Schema: 1, Run: endedID(1)})
	h := d.Handler(secret.Value{}, d.probes())
	for _, path := range []string{"/v1/runs", "/v1/overview"} {
		var p runsPage
		get(t, h, path, &p)
		ids := make([]identity.RunID, 0, len(p.Runs))
		for _, r := range p.Runs {
			ids = append(ids, r.Run)
		}
		if want := []identity.RunID{endedID(2), endedID(1), endedID(0)}; !slices.Equal(ids, want) || *p.More != 0 {
			t.Errorf("%s has %v and %d more, want %v", path, ids, *p.More, want)
		}
	}
}

// Whatever runs, workers and uploads are called, and whatever they say, no answer is longer than
// 64 KiB, and each is JSON.
func TestAnswersAreBoundedWhateverNamesSay(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	hostile := strings.Repeat("\u202e<script>\x01\"\\\U0001f600", 100)
	for i := range 60 {
		id := identity.RunID(fmt.Sprintf("01JE%022d", i))
		m := statustest.Manifest(id)
		m.Name, m.ModelURI, m.Inputs = hostile, hostile, nil
		for k := range 20 {
			m.Inputs = append(m.Inputs, record.Input{Key: fmt.Sprint("prompts/", hostile, k, ".jsonl")})
		}
		d.save(record.ManifestKey(id), m)
		d.save(record.OpenRunKey(id), record.NamedRun{Schema: 1, Run: id})
		st := run.New(id)
		st.Phase, st.Message = run.Running, hostile
		st.Counts.OK, st.Counts.Failed = 10, 500
		st.Counts.ByClass, st.Counts.Finish = map[string]int{}, map[string]int{}
		for k := range 500 {
			st.Counts.ByClass[fmt.Sprint(hostile[:50], k)] = 1
			st.Counts.Finish[fmt.Sprint(hostile[:50], k)] = 1
		}
		d.save(record.CoordinatorKey(id), st)
		beat := health.Heartbeat{Schema: 1, Worker: fmt.Sprint("w", i), Pool: "default", State: health.Ready, Host: hostile,
			At: noon, DueAt: noon.Add(time.Second)}
		for k := range 500 {
			beat.Holds = append(beat.Holds, health.HeldShard{Run: id, Shard: k})
		}
		d.save(record.HeartbeatKey(fmt.Sprint("w", i)), beat)
		if _, err := d.ports.Blobs.Put(t.Context(), fmt.Sprint("prompts/", strings.Repeat("n", 200), i, ".txt"),
			strings.NewReader("{}"), putOptions); err != nil {
			t.Fatal(err)
		}
	}
	d.save(record.RunIndexKey, record.RunIndex{Schema: 1, Built: true})
	h := d.Handler(secret.Value{}, d.probes())
	one := "/v1/runs/" + fmt.Sprintf("01JE%022d", 7)
	for _, path := range []string{"/v1/runs", "/v1/workers", "/v1/overview", one, one + "/explain"} {
		w := get(t, h, path, nil)
		if w.Code != http.StatusOK || !json.Valid(w.Body.Bytes()) || bytes.Contains(w.Body.Bytes(), []byte("<script>")) {
			t.Errorf("GET %s: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
	if ids, _ := walk(t, h, ""); len(ids) != 60 {
		t.Errorf("the pages have %d runs", len(ids))
	}
}

func TestUnchangedAnswersAreNotSentAgain(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Completed)
	h := d.Handler(secret.Value{}, d.probes())
	path := "/v1/runs/" + string(runA)
	tag := get(t, h, path, nil).Header().Get("ETag")
	if !strings.HasPrefix(tag, `W/"`) {
		t.Fatalf("the ETag is %s", tag)
	}
	for given, want := range map[string]int{
		tag: 304, `"other", ` + tag: 304, strings.TrimPrefix(tag, "W/"): 304, `W/"other"`: 200,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:8787"+path, nil)
		r.Header.Set("If-None-Match", given)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == http.StatusNotModified && w.Body.Len() > 0 {
			t.Errorf("If-None-Match: %s answers %d with %d bytes", given, w.Code, w.Body.Len())
		}
	}
	st := run.New(runA)
	st.Phase, st.Message = run.Completed, "another"
	d.save(record.CoordinatorKey(runA), st)
	if w := get(t, h, path, nil, "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("a run that changed answers %d", w.Code)
	}
}

// The page and its files hold no data: they need no token, also where all else does.
func TestThePageIsAtTheRoot(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	h := d.Handler(secret.NewValue("s3cr3t"), d.probes())
	for path, want := range map[string]int{
		"/": 200, "/page/index.html": 200, "/page/none.js": 404, "/page/../v1/runs": 401, "/v1/runs": 401,
		"/v1/session": 200, "/pages": 401,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example"+path, nil)
		r.Header.Set("Accept", "text/html,application/xhtml+xml")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("GET %s answers %d, want %d", path, w.Code, want)
		}
		if kind := w.Header().Get("Content-Type"); path == "/" && !strings.HasPrefix(kind, "text/html") {
			t.Errorf("GET %s answers %s", path, kind)
		}
	}
}
