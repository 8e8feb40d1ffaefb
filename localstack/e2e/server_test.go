package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// llm is a running fakellm.
type llm struct {
	*process
	url string
}

// model is the name of the model that it serves.
const model = "fake"

// serve starts an inference server on a free port.
func serve(t *testing.T, args ...string) llm {
	t.Helper()
	p := launch(t, fakellm, args...)
	s := llm{process: p}
	eventually(t, "fakellm prints its URL", func() bool {
		line, _, ok := strings.Cut(p.stdoutText(), "\n")
		s.url = line
		return ok
	})
	return s
}

// serveSlowly starts a server whose answers take about the latency.
func serveSlowly(t *testing.T, latency time.Duration) llm {
	t.Helper()
	return serve(t, "--latency", latency.String(), "--spread", "0.8")
}

// serveRestarting starts a server that is started again 300 ms after each crash,
// on the same port.
func serveRestarting(t *testing.T, args ...string) llm {
	t.Helper()
	return serve(t, append([]string{"--restart", "300ms"}, args...)...)
}

// gate stands before an inference server and can hold requests for answers back.
type gate struct {
	url  string
	open sync.RWMutex // locked for writing while they are held
}

// serveBehindGate starts a gate before a server.
func serveBehindGate(t *testing.T, s llm) *gate {
	t.Helper()
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	forward := httputil.NewSingleHostReverseProxy(at)
	forward.ErrorLog = log.New(io.Discard, "", 0) // of clients that are killed
	listening := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			g.open.RLock()
			defer g.open.RUnlock()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(listening.Close)
	g.url = listening.URL
	return g
}

// hold waits until the server answers nothing any more, and holds what comes from
// then on.
func (g *gate) hold() { g.open.Lock() }

// release lets all through again.
func (g *gate) release() { g.open.Unlock() }

// crashes is how often a server of serveRestarting has crashed so far.
func (s llm) crashes() int { return strings.Count(s.stdoutText(), `"event":"died"`) }

var (
	requestsTotal   = regexp.MustCompile(`(?m)^fakellm_requests_total\S* (\d+)$`)
	requestsRunning = regexp.MustCompile(`(?m)^vllm:num_requests_running\S* (\d+)\.0$`)
)

// requests is how many requests the server has received so far.
func (s llm) requests() int { return s.metric(requestsTotal) }

// running is how many requests the server processes now.
func (s llm) running() int { return s.metric(requestsRunning) }

func (s llm) metric(pattern *regexp.Regexp) int {
	s.t.Helper()
	_, body := get(s.t, s.url+"/metrics")
	m := pattern.FindStringSubmatch(body)
	if m == nil {
		s.t.Fatalf("fakellm has no metric %s:\n%s", pattern, body)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// get sends a GET request to a server that must answer.
func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	return request(t, http.MethodGet, url, "")
}

// client bounds requests to servers that hang.
var client = &http.Client{Timeout: patience}

// request sends a request to a server that must answer.
func request(t *testing.T, method, url, body string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	code, _, answer = roundTrip(t, req)
	return code, answer
}

// roundTrip sends a request and reads the answer.
func roundTrip(t *testing.T, r *http.Request) (code int, h http.Header, answer string) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // read only
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}
