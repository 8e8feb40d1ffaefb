package browser

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/functions/page"
)

// scriptedAPI is the page's server with an API whose answers a test sets, for what a real installation
// shows only after hours or by accident: a million items, hostile texts, a server that goes away.
type scriptedAPI struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	answers  map[string]any // path without query → answer of a GET
	posts    []string       // "METHOD path body" of what was changed
	statuses map[string]int // path without query → status, if it is not 200
	streams  int            // open now
	most     int            // streams that were open at once
	changed  chan struct{}  // closed at each change of the script
	noted    chan struct{}  // closed whenever a request or the end of a stream was noted
	largest  int            // bytes of an answer
	asked    map[string]int // GETs by path without query
	unsent   int            // GETs that were answered with 304
	stream   bool           // whether /v1/stream is there
	down     bool           // whether connections are cut
}

// The runs of the script: a batch, and a run of trials.
const (
	scriptedRun    = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	scriptedTrials = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"
)

type object = map[string]any

// startScripted starts the server with one run of so many items.
func startScripted(t *testing.T, items int) *scriptedAPI {
	s := &scriptedAPI{t: t, statuses: map[string]int{}, changed: make(chan struct{}), noted: make(chan struct{}),
		asked: map[string]int{}, stream: true}
	s.answers = map[string]any{
		"/v1/session":                             object{"needed": false, "signed_in": false},
		"/v1/runs":                                object{"runs": []any{scriptedStatus(items)}, "next": nil, "ended": 0},
		"/v1/runs/" + scriptedRun:                 scriptedStatus(items),
		"/v1/overview":                            scriptedOverview(),
		"/v1/runs/" + scriptedRun + "/history":    scriptedHistory(items),
		"/v1/runs/" + scriptedRun + "/errors":     scriptedErrors(),
		"/v1/runs/" + scriptedRun + "/items":      nil, // pages are made as they are asked for
		"/v1/runs/" + scriptedRun + "/items/41":   scriptedItem(41, "case-041"),
		"/v1/runs/" + scriptedRun + "/items/42":   scriptedItem(42, "case-042"),
		"/v1/runs/" + scriptedTrials:              scriptedTrialsStatus("running"),
		"/v1/runs/" + scriptedTrials + "/trials":  scriptedGrid(false),
		"/v1/runs/" + scriptedTrials + "/history": scriptedHistory(360),
		"/v1/runs/" + scriptedTrials + "/errors":  object{"classes": []any{}, "finish_reasons": object{}},
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(func() { s.set(func() { s.stream, s.down = false, true }) }) // ends the streams
	s.url = server.URL
	return s
}

// set changes the script, and lets streams tell it.
func (s *scriptedAPI) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// get returns a value of the script.
func (s *scriptedAPI) get(value func() int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return value()
}

// note changes what was asked, and wakes those that wait for it.
func (s *scriptedAPI) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.noted)
	s.noted = make(chan struct{})
}

// await waits until what was asked has made the condition true.
func (s *scriptedAPI) await(what string, condition func() bool) {
	s.t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		done, noted := condition(), s.noted
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-noted:
		case <-late:
			s.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (s *scriptedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, page.Prefix) {
		page.Handler().ServeHTTP(w, r)
		return
	}
	s.mu.Lock()
	down, stream := s.down, s.stream
	s.mu.Unlock()
	switch {
	case down:
		panic(http.ErrAbortHandler) // the connection breaks
	case r.URL.Path == "/v1/stream" && stream:
		s.serveStream(w, r)
	case r.Method != http.MethodGet:
		s.change(w, r)
	default:
		s.answer(w, r)
	}
}

func (s *scriptedAPI) answer(w http.ResponseWriter, r *http.Request) {
	s.note(func() { s.asked[r.URL.Path]++ })
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.answers[r.URL.Path]
	if ok && strings.HasSuffix(r.URL.Path, "/items") {
		v = s.page(r)
	}
	if code := s.statuses[r.URL.Path]; code != 0 || !ok {
		if code == 0 {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		fmt.Fprint(w, `{"error":{"kind":"not_found","message":"it is not in the script"}}`)
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		s.t.Error(err)
	}
	s.largest = max(s.largest, len(body))
	etag := fmt.Sprintf(`W/"%x"`, sha256.Sum256(body))
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		s.unsent++
		close(s.noted)
		s.noted = make(chan struct{})
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// page returns a page of items: 50 after the cursor, every tenth failed.
func (s *scriptedAPI) page(r *http.Request) any {
	of := s.answers["/v1/runs/"+scriptedRun].(object)["items"].(object)["total"].(int)
	after, _ := strconv.Atoi(r.URL.Query().Get("after")) // 0 without a cursor
	class := r.URL.Query().Get("class")
	items, n := []any{}, after
	for ; n < of && len(items) < 50; n++ {
		it := object{"index": n, "id": fmt.Sprintf("case-%03d", n), "state": "done", "class": "",
			"finish_reason": "stop", "score": 0.75, "tokens": 180,
			"preview": "The refund is due, as the ticket is from within thirty days of the purchase."}
		if n%10 == 3 {
			it["state"], it["class"], it["finish_reason"], it["score"] = "failed", "engine", "", nil
			it["preview"] = "the server answered with status 500: CUDA out of memory"
		}
		if class == "" || class == it["class"] {
			items = append(items, it)
		}
	}
	var next any
	if n < of {
		next = strconv.Itoa(n)
	}
	return object{"items": items, "next": next, "scanned": n, "of": of}
}

func (s *scriptedAPI) change(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.note(func() { s.posts = append(s.posts, r.Method+" "+r.URL.Path+" "+string(body)) })
	switch path := r.URL.Path; {
	case path == "/v1/session":
		s.set(func() { s.statuses = map[string]int{} }) // signed in
		w.WriteHeader(http.StatusNoContent)
	case path == "/v1/files":
		fmt.Fprint(w, `{"id":"file-7","object":"file","bytes":2048}`)
	case strings.HasSuffix(path, "/check"):
		fmt.Fprint(w, `{"rows":240,"bad_lines":1,"first_bad":[{"line":9,"message":"it is not a JSON object"}],
			"duplicates":2,"bytes":2048,"prompt_tokens_estimate":18000,"shards":null,"cost_usd_estimate":0.02,
			"eta_seconds":null,"dialect":"openai","model":"Qwen/Qwen2.5-7B-Instruct","complete":true,
			"warnings":["line 9 is bad"],"head":[{"index":0,"id":"a-1","preview":"Is the lamp refunded?"}]}`)
	default:
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"run_id":%q}`, scriptedRun)
	}
}

// serveStream tells of each change, as up does.
func (s *scriptedAPI) serveStream(w http.ResponseWriter, r *http.Request) {
	s.note(func() {
		s.streams++
		s.most = max(s.most, s.streams)
	})
	defer s.note(func() { s.streams-- })
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 200\n\n")
	for {
		s.mu.Lock()
		changed, end := s.changed, !s.stream || s.down
		status, _ := json.Marshal(s.answers["/v1/runs/"+r.URL.Query().Get("run")])
		s.mu.Unlock()
		if end {
			return
		}
		fmt.Fprint(w, "event: overview\ndata: {}\n\n")
		if r.URL.Query().Get("run") != "" {
			fmt.Fprintf(w, "event: run\ndata: %s\n\n", status)
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// scriptedStatus is a run that is busy, with something of everything that a view shows.
func scriptedStatus(items int) object {
	return object{
		"run_id": scriptedRun, "name": "nightly-refunds", "kind": "batch", "phase": "running", "reason": "",
		"message": "",
		"model":   "Qwen/Qwen2.5-7B-Instruct", "pool": "default", "inputs": []any{"prompts/nightly-refunds.jsonl"},
		"items": object{"total": items, "done": items / 2, "failed": items / 20, "unanswered": 0, "at_fault": items / 20,
			"in_hand": items / 10, "planned": true},
		"failed_by_class": object{"engine": items / 25, "timeout": items / 100},
		"finish_reasons":  object{"stop": items * 45 / 100, "length": items / 20},
		"shards":          object{"total": 40, "dispatched": 30, "running": 4, "done": 20},
		"tokens":          object{"prompt": items * 180, "completion": items * 90, "wasted": items},
		"cost_usd":        3.271, "cost": object{"tokens_usd": 0, "machines_usd": 3.25, "boot_usd": 0.4, "idle_usd": 0.1,
			"functions_usd": 0.02, "storage_usd": 0.001, "per_million_items_usd": 6.5},
		"budgets": []any{object{"name": "dollars", "used": 3.271, "limit": 10}},
		"shares": []any{object{"pool": "default", "fraction": 0.8, "weight": 4, "priority": "normal",
			"priority_weight": 4,
			"hurry":           1, "total_weight": 5, "runs": 2, "requests": 96, "all_requests": 120}},
		"rate": 41.5, "token_rate": 3710.0, "training": nil, "eta_seconds": 252.0,
		"hold_ups": []any{object{"code": "server_slow", "text": "one of 3 servers answers no request since 40s",
			"remedy": "look at the log of http://10.0.0.7:8000/v1, or start it again"}},
		"created_at": "2026-03-01T12:00:00Z", "started_at": "2026-03-01T12:00:01Z", "last_row_at": nil, "deadline": nil,
		"ended_at": nil, "outputs": "runs/" + scriptedRun + "/completions.jsonl",
		"errors": "runs/" + scriptedRun + "/errors.jsonl", "summary": "runs/" + scriptedRun + "/summary.json",
	}
}

func scriptedOverview() object {
	servers := []any{}
	for n, state := range []string{"closed", "closed", "open"} {
		servers = append(servers, object{"name": fmt.Sprintf("http://10.0.0.%d:8000/v1", 5+n), "state": state,
			"in_flight": 32 * (2 - n), "limit": 64, "waiting": 3, "why": ""})
	}
	return object{"runs": []any{}, "more": 0,
		"workers": []any{object{"worker_id": "w-7f3a9c", "pool": "default", "state": "ready", "alive": true,
			"draining":  "",
			"in_flight": 128, "engine": "ready", "host": "gpu-17", "pid": 4711, "cpus": 16, "gpus": 2,
			"machine_kind": "g6.xlarge spot", "usd_per_hour": 0.41, "started_at": "2026-03-01T11:58:00Z",
			"beat_at": "2026-03-01T12:05:00Z",
			"due_at":  "2026-03-01T12:05:04Z", "holds": []any{object{"run": scriptedRun, "shard": 12, "attempt": 1}},
			"load": object{"busy": 96, "rows": 4000, "tokens": 360000, "rate": 41.5, "token_rate": 3710, "median_ms": 2140,
				"faults": 3, "fault": "the server answered with status 500: CUDA out of memory", "servers": servers}}},
		"queues": []any{object{"queue": "work-default", "waiting": 12, "hidden": 4, "dead": 0}},
		"uploads": []any{object{"key": "prompts/notes.txt", "at": "2026-03-01T11:00:00Z",
			"why": "its name does not end in .jsonl, .jsonl.gz or .jsonl.zst"}}}
}

// scriptedHistory has the points of four minutes, with a drop of the rate in the middle.
func scriptedHistory(items int) object {
	points, done, failed := []any{}, 0, 0
	for n := range 60 {
		speed := items / 2 / 60
		if n > 25 && n < 33 {
			speed /= 3
		}
		done, failed = done+speed+n%3, failed+speed/10
		points = append(points, object{"t": 4 * n, "done": done, "failed": failed, "in_flight": 90 + n%7,
			"tokens": done * 90})
	}
	return object{"start": "2026-03-01T12:00:01Z", "points": points}
}

func scriptedErrors() object {
	sample := func(index int, message string) object {
		return object{"index": index, "id": fmt.Sprintf("case-%03d", index), "message": message}
	}
	return object{"finish_reasons": object{"stop": 900, "length": 100}, "classes": []any{
		object{"class": "engine", "count": 80, "samples": []any{
			sample(13, "the server answered with status 500: CUDA out of memory"),
			sample(23, "the server answered with status 500")}},
		object{"class": "timeout", "count": 20, "samples": []any{sample(33, "no answer within 2m0s")}}}}
}

func scriptedItem(index int, id string) object {
	text := "APPROVE: a defect within 30 days is refunded in full."
	return object{"index": index, "id": id, "state": "done", "error": nil, "attempts": 2, "truncated": []any{"scores"},
		"request": object{"endpoint": "chat", "path": "/custom/chat", "seeds": []any{170_017}, "body": object{
			"model": "Qwen/Qwen2.5-7B-Instruct", "temperature": 0.7, "max_tokens": 400, "messages": []any{
				object{"role": "system", "content": "Answer with APPROVE or DENY, and one sentence that says why."},
				object{"role": "user", "content": []any{
					object{"type": "text", "text": "I bought the lamp 12 days ago, and it hums."},
					object{"type": "image_url", "image_url": object{"url": "https://example.com/lamp.png"}}}},
				object{"role": "user", "content": `{"order": 8812, "days": 12, "reason": "defect", "amount": 49.9}`}}}},
		"answer": object{"answers": []any{object{"text": text, "finish_reason": "tool_calls"}}, "prompt_tokens": 6_161,
			"completion_tokens": 4_242, "row": object{"custom_id": id, "error": nil, "response": object{"status_code": 200,
				"body": object{"choices": []any{object{"index": 0, "finish_reason": "tool_calls", "message": object{
					"role": "assistant", "content": text,
					"reasoning_content": "The ticket is 12 days old. The rule says 30 days for defects.",
					"tool_calls":        []any{object{"function": object{"name": "refund_order"}}}}}}}}}},
		"score":   0.625,
		"scores":  object{"exact": object{"score": 1}, "tone": object{"score": nil, "cause": "timeout"}, "shortened": true},
		"timings": object{"claimed_at": "2026-03-01T12:04:01Z", "answered_at": "2026-03-01T12:04:09Z"},
		"where": object{"item": index, "id": id, "item_id": "9f2b7c", "file": "prompts/nightly-refunds.jsonl",
			"line": index + 1, "state": "done", "story": []any{"attempt 1: the server broke off",
				"attempt 2: answered after 2.1s"}, "next": ""}}
}

// scriptedTrialsStatus is a run of trials in a phase: 25 of 40 tasks under three variants, three times each.
func scriptedTrialsStatus(phase string) object {
	s := scriptedStatus(360)
	s["run_id"], s["name"], s["kind"], s["phase"] = scriptedTrials, "agents", "trials", phase
	return s
}

// scriptedGrid is the grid of trials while the run goes on, with something of every state, or when it has ended.
func scriptedGrid(ended bool) object {
	rows := []any{}
	for task := range 25 {
		cells := []any{}
		for variant := range 3 {
			counts := map[string]int{}
			list, scored, sum := []any{}, 0, 0.0
			for n := range 3 {
				state, score := "answered", any(float64((task+variant+n)%2))
				switch at := task*9 + n*3 + variant; {
				case at%17 == 5:
					state, score = "failed", 0.0
				case at%23 == 7:
					state, score = "infrastructure", nil
				case variant == 2 && task > 12:
					state, score = "pruned", nil
				case !ended && task > 18:
					state, score = "waiting", nil
				case !ended && task > 15:
					state, score = "in_hand", nil
				}
				counts[state]++
				if x, ok := score.(float64); ok {
					scored, sum = scored+1, sum+x
				}
				list = append(list, object{"index": task*9 + n*3 + variant, "state": state, "score": score})
			}
			c := object{"scored": scored, "score": nil, "trials": list}
			for _, state := range []string{"answered", "failed", "infrastructure", "pruned", "in_hand", "waiting"} {
				c[state] = counts[state]
			}
			if scored > 0 {
				c["score"] = sum / float64(scored)
			}
			cells = append(cells, c)
		}
		name := fmt.Sprintf("django-%05d-a-rather-long-name", task)
		rows = append(rows, object{"number": task, "task": name, "cells": cells})
	}
	variants := []any{}
	for n, name := range []string{"plain", "step-by-step", "terse"} {
		v := object{"name": name, "ended": ended, "trials": 120, "answered": 110, "failed": 6, "infrastructure": 4,
			"pruned": 0, "scored": 116, "scored_tasks": 40, "score": nil, "low": nil, "high": nil}
		if ended {
			v["score"], v["low"], v["high"] = 0.5+0.1*float64(n), 0.41+0.1*float64(n), 0.6+0.1*float64(n)
		}
		variants = append(variants, v)
	}
	return object{"tasks": 40, "replications": 3, "graded": true, "variants": variants, "rows": rows, "next": 25,
		"unread": 0}
}
