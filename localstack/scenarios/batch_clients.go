package scenarios

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/record"
)

// BatchAPI is the API of an installation in a cloud, as clients of OpenAI's Batch API see it.
type BatchAPI struct {
	URL  string         // with /v1
	Key  string         // the client's API key
	Docs document.Store // the installation's, for the test alone
}

// installed returns the folder with OpenAI's clients, and that of the scripts that use them. source
// is the root of the repository. Without the clients the test is skipped; in CI it fails.
func installed(t *testing.T, source string) (clients, scripts string) {
	t.Helper()
	clients, scripts = filepath.Join(source, "out", "openaiclient"), filepath.Join(source, "localstack", "interop",
		"openaiclient")
	for _, path := range []*string{&clients, &scripts} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			t.Fatal(err)
		}
		*path = abs
	}
	if _, err := os.Stat(filepath.Join(clients, "installed")); err != nil {
		const missing = "OpenAI's clients are not installed: run `make openai-client`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if _, err := os.ReadDir(scripts); err != nil { // a cached result is discarded if a script has changed
		t.Fatal(err)
	}
	return clients, scripts
}

// RunClients runs batches with OpenAI's clients for Python and Node, as far as a cloud takes their
// whole life in a short time. The inference server never answers "hang on this one".
func (a BatchAPI) RunClients(t *testing.T, source string) {
	t.Helper()
	clients, scripts := installed(t, source)
	for client, c := range map[string]struct {
		command []string
		checks  string
	}{
		"Python": {[]string{filepath.Join(clients, "python", "bin", "python"), "batches.py"},
			"whole_life all_bad strict cancelled expired lost_reply in_parts errors deleted models"},
		"Node": {[]string{filepath.Join(clients, "bin", "node"), "batches.mjs", clients},
			"wholeLife allBad strict cancelled lostReply errors deleted models"},
	} {
		args := append(append(c.command[1:], a.URL), strings.Fields(c.checks)...)
		cmd := exec.CommandContext(t.Context(), c.command[0], args...)
		cmd.Dir = scripts
		cmd.Env = append(os.Environ(), "API_KEY="+a.Key, "RETRIES=5") // of what the API's throttle refuses
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v:\n%s", client, err, out)
		}
	}
}

// WantLists saves 250 batches and 250 files, and finds them in the lists, in pages that a function
// can answer.
func (a BatchAPI) WantLists(t *testing.T) {
	t.Helper()
	metadata := map[string]string{}
	for n := range 16 {
		metadata[fmt.Sprint(n)] = strings.Repeat("x", 512)
	}
	batches, files := make([]string, 250), make([]string, 250)
	later := time.Now().Add(time.Hour) // so that none of the batches is late, and announced again
	save := func(n int) {
		run, at := identity.UploadRun("batch", "listed", fmt.Sprint(n)), later.Add(-time.Duration(n)*time.Millisecond)
		id := fmt.Sprintf("file-%026d", n) // the newest of all
		batches[n], files[n] = "batch_"+string(run), id
		b := record.Batch{Schema: record.Schema, Run: run, Created: at, Window: "24h", Metadata: metadata}
		f := record.File{Schema: record.Schema, ID: id, Created: at, Name: strings.Repeat("x", 200), Purpose: "batch"}
		for key, value := range map[string]any{record.BatchKey(run): b, record.FileKey(id): f,
			record.CreatedKey(at, run): record.NamedRun{Schema: record.Schema, Run: run, Created: at}} {
			if _, err := host.Save(t.Context(), a.Docs, key, value, ""); err != nil {
				t.Error(err)
			}
		}
	}
	var all sync.WaitGroup
	const writers = 8
	for w := range writers {
		all.Go(func() {
			for n := w; n < len(batches); n += writers {
				save(n)
			}
		})
	}
	all.Wait()
	for path, want := range map[string][]string{"/batches?limit=100": batches, "/files?limit=10000": files} {
		got := a.list(t, path)
		if len(got) <= len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s lists %d, want %d and those of the clients, in order", path, len(got), len(want))
		}
		slices.Sort(got)
		if all := len(got); len(slices.Compact(got)) != all {
			t.Errorf("%s lists one twice", path)
		}
	}
}

// list returns the ids of a list, which it reads page after page.
func (a BatchAPI) list(t *testing.T, path string) (ids []string) {
	t.Helper()
	for after, more := "", true; more; {
		var body []byte
		Eventually(t, "the API's throttle admits a request", func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL+path+"&after="+after, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+a.Key)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if body, err = io.ReadAll(answer.Body); err != nil {
				t.Fatal(err)
			}
			return answer.StatusCode == http.StatusOK
		})
		var page struct {
			Data    []struct{ ID string }
			HasMore bool `json:"has_more"`
		}
		if err := json.Unmarshal(body, &page); err != nil || len(body) > 64<<10 || len(page.Data) == 0 {
			t.Fatalf("a page of %d bytes: %v: %.200s", len(body), err, body)
		}
		for _, o := range page.Data {
			ids = append(ids, o.ID)
		}
		after, more = ids[len(ids)-1], page.HasMore
	}
	return ids
}
