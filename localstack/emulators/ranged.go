package emulators

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
)

// newRanged makes an emulator that gives a version of an object whole give the
// range of it that was asked for.
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
			if !strings.HasPrefix(name, "X-Amz-Checksum-") { // of the whole
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
