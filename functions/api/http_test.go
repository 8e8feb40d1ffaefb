package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/secret"
)

var putOptions blob.PutOptions

type request struct {
	method, path, body string
	header             http.Header // the header Host sets the request's host
}

// ask serves a request, and checks that the response is JSON.
func ask(t *testing.T, h http.Handler, q request) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), q.method, q.path, strings.NewReader(q.body))
	r.Host = "127.0.0.1:8080"
	if host := q.header.Get("Host"); host != "" {
		r.Host = host
	}
	for name, values := range q.header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s answers %q", q.method, q.path, got)
	}
	return w
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	a := "/v1/runs/" + string(runA)
	get := func(path string) request { return request{method: "GET", path: path} }
	post := func(path, body string) request { return request{method: "POST", path: path, body: body} }
	with := func(q request, header, value string) request {
		q.header = http.Header{header: {value}}
		return q
	}
	huge := `{"reason":"` + strings.Repeat("x", 70<<10) + `"}`
	for name, c := range map[string]struct {
		request
		code int
		has  string // part of the body
	}{
		"healthz":                 {get("/healthz"), 200, `{"alive":true,"ready":true,"why":[]}`},
		"readyz":                  {get("/readyz"), 200, `"ready":true`},
		"metrics":                 {get("/metrics"), 200, `counted`},
		"POST of metrics":         {post("/metrics", ""), 405, `use GET`},
		"runs":                    {get("/v1/runs"), 200, `{"runs":[{"run_id":"` + string(runA)},
		"run":                     {get(a), 200, `"phase":"running"`},
		"HEAD of a run":           {request{method: "HEAD", path: a}, 200, ``},
		"explanation":             {get(a + "/explain"), 200, `"story":["submitted at`},
		"explanation of an item":  {get(a + "/explain?item=x%2F1"), 404, `the input prompts/nightly.jsonl is gone`},
		"history":                 {get(a + "/history"), 200, `{"start":null,"points":[]}`},
		"errors":                  {get(a + "/errors"), 200, `{"classes":[],"finish_reasons":{}}`},
		"items":                   {get(a + "/items"), 200, `{"items":[],"next":null,"scanned":0,"unread":0,"of":0}`},
		"items of a bad score":    {get(a + "/items?min_score=x"), 400, `min_score=x must be a number`},
		"items behind nothing":    {get(a + "/items?after=x"), 400, `"kind":"invalid"`},
		"too many items":          {get(a + "/items?limit=201"), 400, `from 1 to 200`},
		"an item without input":   {get(a + "/items/7"), 404, `"kind":"not_found"`},
		"an item of no number":    {get(a + "/items/x"), 400, `is not the index of an item`},
		"overview":                {get("/v1/overview"), 200, `"uploads":[{"key":"prompts/x.jsonl"`},
		"workers":                 {get("/v1/workers"), 200, `{"workers":[],"more":0}`},
		"unknown run":             {get("/v1/runs/" + string(runB)), 404, `"kind":"not_found"`},
		"pause":                   {post(a+"/pause", `{"reason":"lunch"}`), 202, `"run_id"`},
		"pause without a body":    {post(a+"/pause", ""), 202, `"run_id"`},
		"resume":                  {post(a+"/resume", ""), 202, `"run_id"`},
		"stop":                    {post(a+"/stop", ""), 202, `"run_id"`},
		"submit":                  {post("/v1/runs", `{"key":"prompts/x.jsonl"}`), 202, `"key":"prompts/x.jsonl"`},
		"submit a missing object": {post("/v1/runs", `{"key":"prompts/y.jsonl"}`), 404, `upload it first`},
		"submit without a key":    {post("/v1/runs", `{}`), 400, `"kind":"invalid"`},
		"unknown field":           {post("/v1/runs", `{"kex":"prompts/x.jsonl"}`), 400, `kex`},
		"two objects":             {post("/v1/runs", `{"key":"prompts/x.jsonl"}{}`), 400, `goes on`},
		"not JSON":                {post(a+"/pause", `reason=x`), 400, `"kind":"invalid"`},
		"huge body":               {post(a+"/pause", huge), 413, `"kind":"exhausted"`},
		"DELETE of a run":         {request{method: "DELETE", path: a}, 405, `use GET`},
		"GET of an action":        {get(a + "/pause"), 405, `use POST`},
		"unknown path":            {get("/v2/runs"), 404, `"kind":"not_found"`},

		"host by name":           {with(get("/v1/runs"), "Host", "localhost:8080"), 200, ``},
		"host by IPv6":           {with(get("/v1/runs"), "Host", "[::1]:8080"), 200, ``},
		"DNS rebinding":          {with(get("/v1/runs"), "Host", "evil.example:8080"), 403, `"kind":"denied"`},
		"POST from another page": {with(post(a+"/stop", ""), "Origin", "https://evil.example"), 403, `"kind":"denied"`},
		"POST from a sandbox":    {with(post(a+"/stop", ""), "Origin", "null"), 403, `"kind":"denied"`},
		"page of this machine":   {with(get("/v1/runs"), "Origin", "http://localhost:3000"), 200, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.submitted(runA, run.Running)
			if _, err := d.ports.Blobs.Put(t.Context(), "prompts/x.jsonl", strings.NewReader("{}\n"), putOptions); err != nil {
				t.Fatal(err)
			}
			w := ask(t, d.Handler(secret.Value{}, d.probes()), c.request)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.has) {
				t.Errorf("%d %s, want %d with %s", w.Code, w.Body, c.code, c.has)
			}
		})
	}
}

func TestPostSteersTheRun(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Running)
	h := d.Handler(secret.Value{}, d.probes())
	for _, c := range []struct {
		action string
		want   record.Desired
	}{{"pause", record.DesiredPause}, {"resume", record.DesiredRun}, {"stop", record.DesiredEnd}} {
		ask(t, h, request{method: "POST", path: "/v1/runs/" + string(runA) + "/" + c.action})
		if got := d.control(runA).Desired; got != c.want {
			t.Errorf("after %s the run is desired to %s", c.action, got)
		}
	}
	w := ask(t, h, request{method: "POST", path: "/v1/runs/" + string(runA) + "/pause"})
	if w.Code != http.StatusConflict {
		t.Errorf("pausing a run that is ending answers %d", w.Code)
	}
}

func TestTokenIsRequired(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	h := d.Handler(secret.NewValue("s3cr3t"), d.probes())
	for _, c := range []struct {
		path, authorization string
		code                int
	}{
		{"/v1/runs", "", 401},
		{"/v1/runs", "Bearer wrong", 401},
		{"/v1/runs", "Basic s3cr3t", 401},
		{"/v1/runs", "s3cr3t", 401},
		{"/v1/runs", "Bearer s3cr3t", 200},
		{"/v1/runs", "bearer s3cr3t", 200},
		{"/v1/runs/../../healthz", "", 401},
		{"/metrics", "", 401},
		{"/metrics", "Bearer s3cr3t", 200},
		{"/healthz", "", 200},
		{"/readyz", "", 200},
	} {
		header := http.Header{"Host": {"api.example"}}
		if c.authorization != "" {
			header.Set("Authorization", c.authorization)
		}
		w := ask(t, h, request{method: "GET", path: c.path, header: header})
		if w.Code != c.code || strings.Contains(w.Body.String(), "s3cr3t") {
			t.Errorf("%s with %q: %d %s, want %d", c.path, c.authorization, w.Code, w.Body, c.code)
		}
	}
}

func TestErrorsHaveOneShape(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	w := ask(t, d.Handler(secret.Value{}, d.probes()), request{method: "GET", path: "/v1/runs/" + string(runA)})
	var body struct {
		Error struct{ Kind, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if body.Error.Kind != "not_found" || !strings.Contains(body.Error.Message, string(runA)) {
		t.Errorf("got %+v", body)
	}
}

// FuzzRequests sends arbitrary requests: every response is JSON, and no request
// causes a server error.
func FuzzRequests(f *testing.F) {
	a := "/v1/runs/" + string(runA)
	for _, s := range [][3]string{
		{"GET", a, ""}, {"POST", "/v1/runs", `{"key":"prompts/x.jsonl"}`},
		{"POST", a + "/pause", `{"reason":"lunch"}`}, {"POST", a + "/stop", `{} {}`},
		{"DELETE", "/v1/workers", ""}, {"GET", "/v1/runs/../healthz", ""}, {"GET", "/v1/runs/%00", ""},
		{"POST", "/v1/runs", `{"key":"../../etc/passwd"}`},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		url := "http://127.0.0.1:8080/" + strings.TrimPrefix(path, "/")
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			return // not a valid request
		}
		r.RemoteAddr = "127.0.0.1:1234"
		d := newFixture(t)
		d.submitted(runA, run.Running)
		w := httptest.NewRecorder()
		d.Handler(secret.Value{}, d.probes()).ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		if redirect := w.Code >= 300 && w.Code < 400; !redirect && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s %q: not JSON: %s", method, path, body, w.Body)
		}
	})
}
