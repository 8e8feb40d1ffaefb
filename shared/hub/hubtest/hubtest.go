// Package hubtest is a hub of scripted models for tests: an HTTP server that lists and
// serves files as Hugging Face's does, and fails where a test tells it to.
package hubtest

import (
	"bytes"
	"crypto/sha1" // as git names files
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Commit is that of every model, whatever the revision.
const Commit = "89abcdef0123456789abcdef0123456789abcdef"

// large is the size from which files are told with SHA-256.
const large = 1000

// Hub is a server with one model.
type Hub struct {
	URL string
	// Files has the model's files by their paths. Change them before the first request.
	Files map[string][]byte
	// Served has what is sent of a file if that is not what is told of it.
	Served map[string][]byte
	// Token, if not empty, is demanded for files and lists.
	Token string
	// Break ends the answer of a file after so many bytes, as often as Breaks says.
	Break  int
	Breaks int
	// Refuse is the status of so many further requests.
	Refuse   int
	Refusals int
	// Whole ignores ranges.
	Whole bool

	mu       sync.Mutex
	requests []string
	tokens   []string // that the server of files got
}

// New starts a hub and, on another host, its server of files, to which it redirects. It
// ends with the test.
func New(t testing.TB, files map[string][]byte) *Hub {
	t.Helper()
	h := &Hub{Files: files}
	store := httptest.NewServer(http.HandlerFunc(h.serveFile))
	t.Cleanup(store.Close)
	// The name is another host than the address of the hub, as with the real one.
	at := strings.Replace(store.URL, "127.0.0.1", "localhost", 1)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, at) }))
	t.Cleanup(hub.Close)
	h.URL = hub.URL
	return h
}

// Requests returns the paths of all requests so far, and the tokens that the server of
// files got, which must be none.
func (h *Hub) Requests() (paths, tokens []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.requests...), append([]string(nil), h.tokens...)
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request, store string) {
	h.mu.Lock()
	h.requests = append(h.requests, r.URL.Path)
	refuse := 0
	if h.Refusals > 0 {
		h.Refusals--
		refuse = h.Refuse
	}
	h.mu.Unlock()
	name, path, isFile := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/"+Commit+"/")
	switch {
	case refuse != 0:
		w.WriteHeader(refuse)
	case h.Token != "" && r.Header.Get("Authorization") != "Bearer "+h.Token:
		w.WriteHeader(http.StatusUnauthorized)
	case isFile:
		at := (&url.URL{Path: "/" + path, RawQuery: "Signature=secret"}).String()
		http.Redirect(w, r, store+at, http.StatusFound)
	case strings.HasPrefix(name, "api/models/") && strings.Contains(name, "/revision/"):
		h.list(w)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// list answers which files the model has.
func (h *Hub) list(w http.ResponseWriter) {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		Path string `json:"rfilename"`
		Size int    `json:"size"`
		Blob string `json:"blobId"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	answer := struct {
		SHA      string    `json:"sha"`
		Siblings []sibling `json:"siblings"`
	}{SHA: Commit}
	for path, b := range h.Files {
		s := sibling{Path: path, Size: len(b),
			Blob: fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...)))}
		if len(b) >= large {
			s.LFS = &lfs{fmt.Sprintf("%x", sha256.Sum256(b)), len(b)}
		}
		answer.Siblings = append(answer.Siblings, s)
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
}

// serveFile is the server of files.
func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	h.mu.Lock()
	if token := r.Header.Get("Authorization"); token != "" {
		h.tokens = append(h.tokens, token)
	}
	b, ok := h.Served[path]
	if !ok {
		b, ok = h.Files[path]
	}
	breaks := h.Breaks > 0 && len(b) > h.Break
	if breaks {
		h.Breaks--
	}
	h.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if h.Whole {
		r.Header.Del("Range")
	}
	if breaks {
		w = &breaking{ResponseWriter: w, left: h.Break}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

// breaking ends the connection after some bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	n, err := b.ResponseWriter.Write(p[:min(len(p), b.left)])
	if err == nil && n < len(p) {
		if f, ok := b.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	b.left -= n
	return n, err
}
