package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// refusingServer stands before a server and refuses every request for an answer, until
// it is mended. It counts these requests.
type refusingServer struct {
	*httptest.Server
	mended  atomic.Bool
	refused atomic.Int64
}

// refusals are what servers say to all requests of a run that has a wrong setting.
var refusals = map[string]struct {
	status int
	words  string
}{
	"wrong key":   {http.StatusUnauthorized, "Incorrect API key provided: sk-abc."},
	"wrong model": {http.StatusNotFound, "The model `fake` does not exist."},
}

func newRefusingServer(t *testing.T, status int, words string) *refusingServer {
	t.Helper()
	at, err := url.Parse(serve(t).url)
	if err != nil {
		t.Fatal(err)
	}
	r, behind := &refusingServer{}, httputil.NewSingleHostReverseProxy(at)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodPost || r.mended.Load() {
			behind.ServeHTTP(w, q)
			return
		}
		r.refused.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":{"message":"` + words + `","type":"invalid_request_error"}}`))
	}))
	t.Cleanup(r.Close)
	return r
}

// A run whose every request is refused spends few requests and pauses; the user reads
// why, in the server's words, and what to do. When the setting is mended and the run is
// resumed, every item is answered. If it is resumed as it is, its items fail.
func TestRefusedRunPausesUntilItsSettingIsMended(t *testing.T) {
	t.Parallel()
	const items, workers = 120, 2
	file := promptsFile(t, simplePrompts(items))
	want := undisturbed(t, file)
	for name, c := range refusals {
		for _, mended := range []bool{true, false} {
			if name == "wrong model" && !mended {
				continue
			}
			t.Run(name+map[bool]string{true: ", mended", false: ", not mended"}[mended], func(t *testing.T) {
				t.Parallel()
				s := newRefusingServer(t, c.status, c.words)
				i := install(t, s.URL, workers, smallShards)
				id := i.submit(file)
				i.await(id, run.Paused, run.Interrupted)
				if n := s.refused.Load(); n > 20*workers {
					t.Errorf("%d requests until the pause, want at most %d", n, 20*workers)
				}
				i.wantRefusalExplained(id, c.words)
				s.mended.Store(mended)
				do(t, 0, "resume", "--dir", i.dir, string(id))
				i.awaitEnd(id)
				got := i.outcome(id)
				if mended {
					wantSame(t, got, want)
					return
				}
				rows := got.errorRows(t)
				for _, row := range rows {
					if row.Class != "refused" || !strings.Contains(row.Error, c.words) {
						t.Fatalf("error row %+v", row)
					}
				}
				if n := s.refused.Load(); len(rows) != items || n > items+60*workers {
					t.Errorf("%d of %d items failed after %d requests", len(rows), items, n)
				}
			})
		}
	}
}

// wantRefusalExplained checks that status and explain tell what the server said, and
// what to do.
func (i *testInstallation) wantRefusalExplained(id identity.RunID, words string) {
	i.t.Helper()
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"explain"}, {"explain", "--json"}} {
		text := do(i.t, 0, append(args, "--dir", i.dir, string(id))...).stdoutText()
		for _, part := range []string{words, "resume"} {
			if !strings.Contains(text, part) {
				i.t.Errorf("rollout %s does not say %q:\n%s", strings.Join(args, " "), part, text)
			}
		}
	}
}
