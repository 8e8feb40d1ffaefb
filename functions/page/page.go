// Package page is the live page of an installation: static files that a browser shows at the
// address of the HTTP API.
//
//	browser ──GET /──────────▶ Handler: index.html ──▶ /page/app.js, /page/page.css, …
//	browser ──GET /v1/…──────▶ functions/api: all data, as JSON
//	browser ◀─/v1/stream────── functions/api: what changed (rollout up alone)
//
// The files are embedded and hold no data, so that they need no token. They load nothing from
// another address, and there is no build step: what is in files/ is what the browser runs.
// The one library, lit-html, is a single file in files/vendor, as its package has it. It keeps the
// page's elements in step with the data, and puts every value into the page as text, never as HTML.
package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed files
var files embed.FS

// Policy is the Content-Security-Policy of the page. Scripts and styles are files of this address,
// and only lit-html's own templates become HTML.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types lit-html"

// Prefix is the path of the page's files, below which all of them are. The page itself is at "/".
const Prefix = "/page/"

// contentTypes are the types of the files by their extension.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", "": "text/plain; charset=utf-8",
}

// file is one file as it is sent.
type file struct {
	body        []byte
	contentType string
	etag        string
}

// Handler serves the page at "/" and its files below Prefix, to GET and HEAD. Other paths are not
// found. A browser that has a file asks again with its ETag, and gets 304. It is safe for
// concurrent use.
func Handler() http.Handler {
	served := map[string]file{}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := files.ReadFile(name)
		sum := sha256.Sum256(body)
		served[Prefix+strings.TrimPrefix(name, "files/")] = file{body: body, contentType: contentTypes[path.Ext(name)],
			etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
		return err
	})
	if err != nil {
		panic("page: the embedded files can't be read: " + err.Error()) // the linker put them there
	}
	served["/"] = served[Prefix+"index.html"]
	return handler(served)
}

// handler serves files by path.
type handler map[string]file

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", Policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	f, ok := h[r.URL.Path]
	switch {
	case !ok:
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is possible here", http.StatusMethodNotAllowed)
		return
	}
	header.Set("ETag", f.etag)
	header.Set("Cache-Control", "no-cache") // ask again each time: a new version is shown at once
	if matches(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.contentType)
	_, _ = w.Write(f.body) // fails only if the browser has gone
}

// matches reports whether a header If-None-Match names the ETag. Weak ones count too, as a
// proxy that compresses a file makes its ETag weak.
func matches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		if candidate = strings.TrimSpace(candidate); candidate == "*" || strings.TrimPrefix(candidate, "W/") == etag {
			return true
		}
	}
	return false
}
