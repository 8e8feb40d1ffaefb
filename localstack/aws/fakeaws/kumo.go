package fakeaws

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/sivchari/kumo"
)

// StartKumo starts the emulator kumo in this process, behind corrections of its S3,
// and returns its address. All emulators of a process share their buckets, tables
// and queues.
func StartKumo() (address string, end func(), err error) {
	emulator := kumo.NewServer()
	at, err := url.Parse(emulator.URL)
	if err != nil {
		emulator.Close()
		return "", nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of requests that callers abort
	server := httptest.NewServer(newS3Fixes(proxy))
	return server.URL, func() { server.Close(); emulator.Close() }, nil
}

// s3Fixes corrects the emulator's S3: answers to HEAD have versions, listings of
// versions have pages, and parts under 5 MiB are refused.
type s3Fixes struct {
	emulator http.Handler
	sizes    partSizes
}

func newS3Fixes(emulator http.Handler) http.Handler {
	return &s3Fixes{emulator: emulator, sizes: partSizes{uploads: map[string]map[int]int64{}}}
}

func (s *s3Fixes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	// An answer before the body's end would close the connection.
	r.Body = io.NopCloser(bytes.NewReader(body))
	query := r.URL.Query()
	switch {
	case r.Header.Get("X-Amz-Target") != "": // another service
		s.emulator.ServeHTTP(w, r)
	case r.Method == http.MethodHead:
		s.head(w, r)
	case r.Method == http.MethodGet && query.Has("versions"):
		s.versions(w, r)
	case r.Method == http.MethodPut && query.Has("partNumber"):
		s.sizes.note(r, s.length)
		s.emulator.ServeHTTP(w, r)
	case r.Method == http.MethodPost && query.Has("uploadId"):
		if s.sizes.refuse(w, query.Get("uploadId"), body) {
			return
		}
		s.emulator.ServeHTTP(w, r)
	default:
		s.emulator.ServeHTTP(w, r)
	}
}

// head serves a HEAD as a GET without the body.
func (s *s3Fixes) head(w http.ResponseWriter, r *http.Request) {
	get := r.Clone(r.Context())
	get.Method = http.MethodGet
	s.emulator.ServeHTTP(headWriter{w}, get)
}

// headWriter drops the body.
type headWriter struct{ http.ResponseWriter }

func (h headWriter) Write(p []byte) (int, error) { return len(p), nil }
