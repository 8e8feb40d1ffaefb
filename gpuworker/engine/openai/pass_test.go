package openai_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
	"rollout/shared/secret"
)

// An error that is passed on holds no key, which some servers repeat.
func TestPassedErrorsConcealTheKey(t *testing.T) {
	t.Parallel()
	for name, packed := range map[string]bool{"plain": false, "packed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				said := `{"error":{"message":"not with ` + r.Header.Get("Authorization") + `"}}`
				if !packed {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, said)
					return
				}
				w.Header().Set("Content-Encoding", "gzip")
				w.WriteHeader(http.StatusBadRequest)
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, said)
				_ = z.Close() // the client may have left
			}))
			t.Cleanup(h.Close)
			key := secret.NewValue("key-of-the-worker")
			c, err := openai.New(openai.Config{BaseURL: h.URL, Key: key})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			a, err := c.Pass(t.Context(), engine.RawRequest{Path: "chat/completions", Body: []byte(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			body, err := io.ReadAll(a.Body)
			want := `{"error":{"message":"not with Bearer ` + key.String() + `"}}`
			if err != nil || string(body) != want || a.Status != http.StatusBadRequest ||
				a.Header.Get("Content-Encoding") != "" {
				t.Errorf("the answer is %d %s, %v; want %s", a.Status, body, err, want)
			}
		})
	}
}
