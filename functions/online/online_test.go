package online_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/functions/online"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/onlinewire"
	"rollout/shared/record"
)

// fixture has a door, and workers whose heartbeats and answers the test sets.
type fixture struct {
	t     *testing.T
	ports host.Ports
	own   *online.Door
	door  *httptest.Server
	dir   string
	reads *reads // of heartbeats
}

// reads are documents that count how often they are listed.
type reads struct {
	document.Store
	n atomic.Int64
}

func (r *reads) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	found, err := r.Store.List(ctx, prefix, after, limit)
	r.n.Add(1)
	return found, err
}

func newFixture(t *testing.T, maxWait time.Duration) *fixture {
	t.Helper()
	f := &fixture{t: t, ports: hosttest.New(), dir: t.TempDir()}
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "m", Executor: config.ExecutorInfer}}
	d.Engine.URL = "http://127.0.0.1:1/v1"
	d.Online.MaxWait = config.Duration(maxWait)
	d.Worker.ProgressTimeout = config.Duration(20 * time.Millisecond)
	f.reads = &reads{Store: f.ports.Docs}
	f.ports.Docs = f.reads
	f.own = online.New(f.ports, d, nil)
	f.door = httptest.NewServer(f.own)
	t.Cleanup(f.door.Close)
	return f
}

// worker adds a worker that answers its requests with the handler.
func (f *fixture) worker(name string, h http.HandlerFunc) health.Heartbeat {
	f.t.Helper()
	socket := filepath.Join(f.dir, name+".sock")
	l, err := onlinewire.Listen(f.t.Context(), socket)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	f.t.Cleanup(s.Close)
	b := health.Heartbeat{Schema: record.Schema, Worker: name, Pool: "default", State: health.Ready,
		DueAt: time.Now().Add(time.Hour), Online: &health.Online{Socket: socket, Engine: "e", Limit: 4}}
	f.beat(b)
	return b
}

// beat writes a heartbeat.
func (f *fixture) beat(b health.Heartbeat) {
	f.t.Helper()
	var old health.Heartbeat
	rev, _, err := host.Load(f.t.Context(), f.ports.Docs, record.HeartbeatKey(b.Worker), &old)
	if err == nil {
		_, err = host.Save(f.t.Context(), f.ports.Docs, record.HeartbeatKey(b.Worker), b, rev)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// ask sends a request and returns the status and the body of the answer.
func (f *fixture) ask() (int, string) {
	f.t.Helper()
	resp, err := http.Post(f.door.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func answers(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// says answers as a worker does that has no answer of a server.
func says(outcome string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(onlinewire.Outcome, outcome)
		onlinewire.WriteProblem(w, status, onlinewire.Problem{Message: outcome, Type: onlinewire.ServerError})
	}
}

// ends ends the connection, as a worker does that is killed before it has begun.
func ends(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// dies ends the connection after it has begun.
func dies(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(onlinewire.Begun)
	panic(http.ErrAbortHandler)
}

// cutOff returns a worker whose whole answer breaks off.
func cutOff(why string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(onlinewire.Begun)
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+onlinewire.Broken, why)
	}
}

// stops answers nothing, as a worker does whose process is suspended.
func stops(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
	<-r.Context().Done()
}

// A request goes on to the next worker as long as no server may have died of it.
func TestRequestGoesToAWorkerThatTakesIt(t *testing.T) {
	t.Parallel()
	isFull := says(onlinewire.Full, http.StatusTooManyRequests)
	for name, c := range map[string]struct {
		workers []http.HandlerFunc // the first is asked first
		status  int
		says    string
	}{
		"one":                           {[]http.HandlerFunc{answers("a")}, 200, "a"},
		"the first drains":              {[]http.HandlerFunc{says(onlinewire.Elsewhere, 503), answers("b")}, 200, "b"},
		"the first is full":             {[]http.HandlerFunc{isFull, answers("b")}, 200, "b"},
		"all are full":                  {[]http.HandlerFunc{isFull, isFull}, 429, "full"},
		"a server died of it":           {[]http.HandlerFunc{says(onlinewire.Failed, 502), answers("b")}, 502, "failed"},
		"the first worker ends":         {[]http.HandlerFunc{dies, answers("b")}, 200, "b"},
		"two workers end while it runs": {[]http.HandlerFunc{dies, dies, answers("c")}, 502, "worker ended"},
		"two end before it runs":        {[]http.HandlerFunc{ends, ends, answers("c")}, 200, "c"},
		"its server breaks off":         {[]http.HandlerFunc{cutOff("it broke"), answers("b")}, 502, "it broke"},
		"a drain cuts it off":           {[]http.HandlerFunc{cutOff(onlinewire.Drained), answers("b")}, 200, "b"},
		"no worker":                     {nil, 503, "no worker"},
		"all drain":                     {[]http.HandlerFunc{says(onlinewire.Elsewhere, 503)}, 503, "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wait := time.Hour
			if c.status == http.StatusServiceUnavailable {
				wait = 20 * time.Millisecond // nothing else ends the search
			}
			f := newFixture(t, wait)
			for n, h := range c.workers {
				f.worker(string(rune('a'+n)), h)
			}
			if status, body := f.ask(); status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("the answer is %d %s", status, body)
			}
		})
	}
}

// While a worker asks an engine about items on probation, no worker of that engine gets a
// request, so that a crash is the fault of nothing else.
func TestEngineOnProbationGetsNoRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	f.worker("a", answers("of the engine"))
	b := f.worker("b", answers("of the engine"))
	other := f.worker("c", answers("of another engine"))
	other.Online.Engine = "other"
	f.beat(other)
	b.ProbationEngine = "e"
	f.beat(b)
	for range 3 {
		if status, body := f.ask(); status != http.StatusOK || body != "of another engine" {
			t.Errorf("the answer is %d %s", status, body)
		}
	}
}

// A request for that engine alone waits until the flag is lowered.
func TestRequestWaitsForTheEndOfTheProbation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Hour)
	b := f.worker("b", answers("of the engine"))
	b.ProbationEngine = "e"
	f.beat(b)
	before := f.reads.n.Load()
	got := make(chan string, 1)
	go func() {
		resp, err := http.Post(f.door.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m"}`))
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got <- string(b)
	}()
	for f.reads.n.Load() < before+4 && len(got) == 0 { // a round has one read of a page, and one of the end
		time.Sleep(time.Millisecond)
	}
	if len(got) > 0 {
		t.Fatalf("during the probation the answer is %s", <-got)
	}
	b.ProbationEngine = ""
	f.beat(b)
	if body := <-got; body != "of the engine" {
		t.Errorf("after the probation the answer is %s", body)
	}
}

// A client that leaves says nothing about the worker that had its request.
func TestClientThatLeavesDoesNotKeepOthersFromTheWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t, time.Millisecond)
	asked := make(chan struct{})
	var requests atomic.Int64
	f.worker("a", func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			_, _ = io.WriteString(w, "a")
			return
		}
		w.WriteHeader(onlinewire.Begun)
		close(asked)
		stops(w, r)
	})
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"m"}`))
		f.own.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-asked
	leave()
	<-ended
	if status, body := f.ask(); status != http.StatusOK || body != "a" {
		t.Errorf("the next request gets %d %s", status, body)
	}
}

// A worker that is suspended holds a request no longer than it is given.
func TestStoppedWorkerDoesNotHoldRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker  http.HandlerFunc
		maxWait time.Duration
		status  int
		says    string
	}{
		"before it has begun": {stops, 20 * time.Millisecond, 502, "does not answer"},
		"in a stream": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			stops(w, r)
		}, time.Hour, 200, "stream_broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, c.maxWait)
			f.own.SetGrace(0)
			f.worker("a", c.worker)
			if status, body := f.ask(); status != c.status || !strings.Contains(body, c.says) {
				t.Errorf("the answer is %d %s", status, body)
			}
		})
	}
}

// A stream that breaks off ends with whole events and the error; one that ends by itself is
// the server's, byte by byte.
func TestBrokenStreamEndsWithTheError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(w http.ResponseWriter)
		want string
	}{
		"its own end": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "data: half") }, "data: 1\n\ndata: half"},
		"a killed worker": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "data: half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "data: 1\n\ndata: {\"error\":{\"message\":\"the worker ended before the answer did\"," +
			"\"type\":\"server_error\",\"param\":null,\"code\":\"stream_broken\"}}\n\n"},
		"a broken server": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "data: half")
			w.Header().Set(http.TrailerPrefix+onlinewire.Broken, "it broke")
		}, "data: 1\n\ndata: {\"error\":{\"message\":\"it broke\"," +
			"\"type\":\"server_error\",\"param\":null,\"code\":\"stream_broken\"}}\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, time.Hour)
			f.worker("a", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				w.(http.Flusher).Flush()
				c.end(w)
			})
			if status, body := f.ask(); status != http.StatusOK || body != c.want {
				t.Errorf("the answer is %d %q, want %q", status, body, c.want)
			}
		})
	}
}
