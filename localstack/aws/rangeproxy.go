package emulators

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// front serves the emulator at the URL on another address, with corrections.
func front(t testing.TB, emulator string, correct func(emulator http.Handler) http.Handler) string {
	t.Helper()
	at, err := url.Parse(emulator)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of requests that tests abort
	server := httptest.NewServer(correct(proxy))
	t.Cleanup(server.Close)
	return server.URL
}

// newRanged corrects an emulator that ignores the range of a GET of an object's
// version.
func newRanged(emulator http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !r.URL.Query().Has("versionId") || r.Header.Get("Range") == "" {
			emulator.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		emulator.ServeHTTP(whole, r)
		body := whole.Body.Bytes()
		for name, values := range whole.Header() {
			if !strings.HasPrefix(name, "X-Amz-Checksum-") { // the checksum of the whole object
				w.Header()[name] = values
			}
		}
		if whole.Code != http.StatusOK {
			w.WriteHeader(whole.Code)
			_, _ = w.Write(body)
			return
		}
		from, to := 0, len(body)-1
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
			to = len(body) - 1 // "bytes=7-"
		}
		to = min(to, len(body)-1)
		if from > to {
			w.Header().Set("Content-Length", "0")
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(body)))
		w.Header().Set("Content-Length", strconv.Itoa(to-from+1))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body[from : to+1])
	})
}
