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
	header             http.Header // Host is the host
}

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
	for name, c := range map[string]struct {
		request
		code int
		has  string // part of the body
	}{
		"healthz":              {request{method: "GET", path: "/healthz"}, 200, `{"alive":true,"ready":true,"why":[]}`},
		"readyz":               {request{method: "GET", path: "/readyz"}, 200, `"ready":true`},
		"metrics":              {request{method: "GET", path: "/metrics"}, 200, `counted`},
		"no post of metrics":   {request{method: "POST", path: "/metrics"}, 405, `use GET`},
		"the runs":             {request{method: "GET", path: "/v1/runs"}, 200, `{"runs":[{"run_id":"` + string(runA)},
		"a run":                {request{method: "GET", path: a}, 200, `"phase":"running"`},
		"a run's head":         {request{method: "HEAD", path: a}, 200, ``},
		"an explanation":       {request{method: "GET", path: "/v1/runs/" + string(runA) + "/explain"}, 200, `"story":["submitted at`},
		"of no such item":      {request{method: "GET", path: "/v1/runs/" + string(runA) + "/explain?item=x%2F1"}, 404, `the input prompts/nightly.jsonl is gone`},
		"the overview":         {request{method: "GET", path: "/v1/overview"}, 200, `"uploads":[{"key":"prompts/x.jsonl"`},
		"the workers":          {request{method: "GET", path: "/v1/workers"}, 200, `{"workers":[]}`},
		"an unknown run":       {request{method: "GET", path: "/v1/runs/" + string(runB)}, 404, `"kind":"not_found"`},
		"pause":                {request{method: "POST", path: a + "/pause", body: `{"reason":"lunch"}`}, 202, `"run_id"`},
		"pause, no body":       {request{method: "POST", path: a + "/pause"}, 202, `"run_id"`},
		"resume":               {request{method: "POST", path: a + "/resume"}, 202, `"run_id"`},
		"stop":                 {request{method: "POST", path: a + "/stop"}, 202, `"run_id"`},
		"submit":               {request{method: "POST", path: "/v1/runs", body: `{"key":"prompts/x.jsonl"}`}, 202, `"key":"prompts/x.jsonl"`},
		"submit nothing there": {request{method: "POST", path: "/v1/runs", body: `{"key":"prompts/y.jsonl"}`}, 404, `upload it first`},
		"submit without a key": {request{method: "POST", path: "/v1/runs", body: `{}`}, 400, `"kind":"invalid"`},
		"an unknown field":     {request{method: "POST", path: "/v1/runs", body: `{"kex":"prompts/x.jsonl"}`}, 400, `kex`},
		"two bodies":           {request{method: "POST", path: "/v1/runs", body: `{"key":"prompts/x.jsonl"}{}`}, 400, `goes on`},
		"no JSON":              {request{method: "POST", path: a + "/pause", body: `reason=x`}, 400, `"kind":"invalid"`},
		"a huge body":          {request{method: "POST", path: a + "/pause", body: `{"reason":"` + strings.Repeat("x", 70<<10) + `"}`}, 413, `"kind":"exhausted"`},
		"another method":       {request{method: "DELETE", path: a}, 405, `use GET`},
		"GET of an action":     {request{method: "GET", path: a + "/pause"}, 405, `use POST`},
		"another path":         {request{method: "GET", path: "/v2/runs"}, 404, `"kind":"not_found"`},

		"by name":             {request{method: "GET", path: "/v1/runs", header: http.Header{"Host": {"localhost:8080"}}}, 200, ``},
		"by IPv6":             {request{method: "GET", path: "/v1/runs", header: http.Header{"Host": {"[::1]:8080"}}}, 200, ``},
		"DNS rebinding":       {request{method: "GET", path: "/v1/runs", header: http.Header{"Host": {"evil.example:8080"}}}, 403, `"kind":"denied"`},
		"another page's post": {request{method: "POST", path: a + "/stop", header: http.Header{"Origin": {"https://evil.example"}}}, 403, `"kind":"denied"`},
		"a sandboxed page":    {request{method: "POST", path: a + "/stop", header: http.Header{"Origin": {"null"}}}, 403, `"kind":"denied"`},
		"a page from here":    {request{method: "GET", path: "/v1/runs", header: http.Header{"Origin": {"http://localhost:3000"}}}, 200, ``},
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

func TestPostsSteerTheRun(t *testing.T) {
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
		t.Errorf("pausing a run that ends answers %d", w.Code)
	}
}

func TestATokenIsDemanded(t *testing.T) {
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
