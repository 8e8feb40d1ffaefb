package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/shared/core/run"
	"rollout/shared/secret"
)

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
