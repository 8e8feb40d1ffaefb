package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// get asks the handler for a path with headers.
func get(method, address string, headers map[string]string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, address, nil)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestPageAndFilesAreServedStrictly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, path, etag string
		code               int
		contentType        string
	}{
		"the page":           {method: "GET", path: "/", code: 200, contentType: "text/html; charset=utf-8"},
		"its name":           {method: "GET", path: "/page/index.html", code: 200, contentType: "text/html; charset=utf-8"},
		"a script":           {method: "GET", path: "/page/app.js", code: 200, contentType: "text/javascript; charset=utf-8"},
		"a style":            {method: "GET", path: "/page/page.css", code: 200, contentType: "text/css; charset=utf-8"},
		"the icon":           {method: "GET", path: "/page/icon.svg", code: 200, contentType: "image/svg+xml"},
		"the headers alone":  {method: "HEAD", path: "/", code: 200, contentType: "text/html; charset=utf-8"},
		"known already":      {method: "GET", path: "/", etag: "*", code: 304},
		"another version":    {method: "GET", path: "/", etag: `"old"`, code: 200, contentType: "text/html; charset=utf-8"},
		"no such file":       {method: "GET", path: "/page/nothing.js", code: 404, contentType: "text/plain; charset=utf-8"},
		"a folder":           {method: "GET", path: "/page/", code: 404, contentType: "text/plain; charset=utf-8"},
		"outside the folder": {method: "GET", path: "/page/../page.go", code: 404, contentType: "text/plain; charset=utf-8"},
		"a post":             {method: "POST", path: "/", code: 405, contentType: "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := get(c.method, c.path, map[string]string{"If-None-Match": c.etag})
			if w.Code != c.code || w.Header().Get("Content-Type") != c.contentType {
				t.Errorf("status %d with type %q, want %d with %q",
					w.Code, w.Header().Get("Content-Type"), c.code, c.contentType)
			}
			if got := w.Header().Get("Content-Security-Policy"); got != Policy {
				t.Errorf("the policy is %q", got)
			}
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options is %q", got)
			}
		})
	}
}

func TestABrowserAsksAgainWithTheETag(t *testing.T) {
	t.Parallel()
	etag := get("GET", "/page/app.js", nil).Header().Get("ETag")
	if etag == "" || etag == get("GET", "/page/page.css", nil).Header().Get("ETag") {
		t.Fatalf("the ETag is %q, want one of the file alone", etag)
	}
	for _, known := range []string{etag, "W/" + etag, `"other", ` + etag} {
		w := get("GET", "/page/app.js", map[string]string{"If-None-Match": known})
		if w.Code != http.StatusNotModified || w.Body.Len() > 0 {
			t.Errorf("If-None-Match %s: status %d with %d bytes", known, w.Code, w.Body.Len())
		}
	}
}

// TestFilesObeyThePolicy looks for what the policy would refuse, and for other addresses.
func TestFilesObeyThePolicy(t *testing.T) {
	t.Parallel()
	refused := map[string]*regexp.Regexp{
		"a script or style in the page": regexp.MustCompile(`(?i)<style|<script(\s[^>]*)?>[^<]|\sstyle=|\son[a-z]+=`),
		"a file of another address":     regexp.MustCompile(`(?i)(src|href|from|import|url\()\s*[=(]?\s*["']?(https?:)?//`),
		"code of a string":              regexp.MustCompile(`\beval\(|new Function`),
		"HTML of a string":              regexp.MustCompile(`(inner|outer|Adjacent|unsafe)HTML|document\.write`),
		"what can't be seen":            regexp.MustCompile("[\u0000-\u0008\u200b-\u200f\u202a-\u202e\u2060-\u2069]"),
	}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(name, "/vendor/") {
			return err
		}
		body, err := files.ReadFile(name)
		for what, pattern := range refused {
			if found := pattern.Find(body); found != nil {
				t.Errorf("%s has %s: %q", name, what, found)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryFileIsAskedFor keeps files out that no other file names, and names of files that are not there.
func TestEveryFileIsAskedFor(t *testing.T) {
	t.Parallel()
	named := map[string]bool{"index.html": true}
	names := regexp.MustCompile(`["'](/page/|\./|\.\./)([A-Za-z0-9./-]+)["']`)
	all := map[string]bool{}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[strings.TrimPrefix(name, "files/")] = true
		body, err := files.ReadFile(name)
		if !strings.Contains(name, "/vendor/") {
			for _, m := range names.FindAllSubmatch(body, -1) {
				at := path.Join(path.Dir(strings.TrimPrefix(name, "files/")), string(m[1])+string(m[2]))
				if string(m[1]) == Prefix {
					at = string(m[2])
				}
				named[at] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !named[name] && !strings.HasSuffix(name, "/LICENSE") {
			t.Errorf("%s is in files/, and nothing loads it", name)
		}
	}
	for name := range named {
		if !all[name] {
			t.Errorf("%s is loaded, and is not in files/", name)
		}
	}
}
