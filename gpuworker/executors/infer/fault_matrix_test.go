package infer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/engine/openai"
	"rollout/gpuworker/executors/infer"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// badAnswer is a way in which a server answers a request without an answer.
type badAnswer struct {
	status int // of HTTP; 0: 200
	body   string
	event  string // in place of body in a stream; "" for the body
	class  fault.Class
	outage bool   // if all requests meet it, it may pass
	says   string // in the error row
}

var badAnswers = map[string]badAnswer{
	"400":              {400, `{"error":{"message":"not initialized"}}`, "", fault.Refused, false, "not initialized"},
	"401":              {401, `{"error":{"message":"who are you"}}`, "", fault.Refused, false, "who are you"},
	"403":              {403, `{"error":{"message":"flagged"}}`, "", fault.Refused, false, "flagged"},
	"404 of the path":  {404, "404 page not found", "", fault.Refused, false, "404 page not found"},
	"404 of the model": {404, `{"error":{"message":"Model m does not exist."}}`, "", fault.Refused, false, "not exist"},
	"408":              {408, `{"error":{"message":"too slow"}}`, "", fault.Refused, true, "too slow"},
	"409":              {409, `{"error":{"message":"conflict"}}`, "", fault.Refused, true, "conflict"},
	"413":              {413, "Request Entity Too Large", "", fault.TooLong, false, "Too Large"},
	"425":              {425, `{"error":{"message":"too early"}}`, "", fault.Refused, true, "too early"},
	"429":              {429, `{"error":{"message":"slow down"}}`, "", fault.Refused, true, "slow down"},
	"451":              {451, `{"error":{"message":"not here"}}`, "", fault.Refused, false, "not here"},
	"500":              {500, `{"error":{"message":"boom"}}`, "", fault.Engine, true, "boom"},
	"502":              {502, "<html>bad gateway</html>", "", fault.Engine, true, "bad gateway"},
	"503":              {503, `{"error":{"message":"overloaded"}}`, "", fault.Engine, true, "overloaded"},
	"HTML":             {0, "<html>maintenance</html>", "", fault.Engine, false, "maintenance"},
	"empty":            {0, "", "", fault.Engine, false, "empty"},
	"no choices":       {0, `{"id":"x","choices":[]}`, "", fault.Engine, false, "choice"},
	"abort": {0, `{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`,
		`{"choices":[{"index":0,"text":"","finish_reason":"abort"}]}`, fault.Engine, false, "abort"},
	"error after a 200": {0, `{"error":{"message":"boom","code":500}}`, `{"error":{"message":"boom","code":500}}`,
		fault.Engine, true, "boom"},
}

func (a badAnswer) write(w http.ResponseWriter, streamed bool) {
	if streamed && a.event != "" {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", a.event)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = io.WriteString(w, a.body)
}

// scriptedServer is an HTTP server over connections in memory. Every answer takes 20 ms.
type scriptedServer struct {
	conns chan net.Conn
	bad   badAnswer
	meets func(prompt string) bool // the requests that get the bad answer

	mu     sync.Mutex
	asked  map[string]int // by prompt; "hi" for small questions
	wholes int            // answers to items that were not streamed
}

func (s *scriptedServer) Accept() (net.Conn, error) {
	c, ok := <-s.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (s *scriptedServer) Close() error   { return nil }
func (s *scriptedServer) Addr() net.Addr { return &net.TCPAddr{} }

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		switch {
		case strings.HasSuffix(r.URL.Path, "/models"):
			_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
		case r.URL.Path == "/metrics":
			s.mu.Lock()
			fmt.Fprintf(w, "vllm:num_requests_running 1\nvllm:generation_tokens_total %d\n", len(s.asked))
			s.mu.Unlock()
		}
		return
	}
	var q struct {
		Stream   bool
		Prompt   string
		Messages []struct{ Content string }
	}
	_ = json.NewDecoder(r.Body).Decode(&q)
	if len(q.Messages) > 0 {
		q.Prompt = q.Messages[0].Content
	}
	s.mu.Lock()
	s.asked[q.Prompt]++
	s.mu.Unlock()
	if s.meets(q.Prompt) {
		s.bad.write(w, q.Stream)
		return
	}
	time.Sleep(20 * time.Millisecond)
	text := `{"index":0,"finish_reason":"stop","text":"answer","message":{"content":"answer"}}`
	if q.Stream {
		text = `{"index":0,"finish_reason":"stop","text":"answer","delta":{"content":"answer"}}`
		fmt.Fprintf(w, "data: {\"choices\":[%s]}\n\ndata: [DONE]\n\n", text)
		return
	}
	s.mu.Lock()
	s.wholes++
	s.mu.Unlock()
	fmt.Fprintf(w, `{"choices":[%s],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, text)
}

// count returns how many requests the server got: of items, and small questions.
func (s *scriptedServer) count() (items, questions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for prompt, n := range s.asked {
		if prompt == "hi" {
			questions += n
		} else {
			items += n
		}
	}
	return items, questions
}

// matrix is a worker with the real client of scripted servers, in a synctest bubble.
type matrix struct {
	host.Ports
	t       *testing.T
	servers []*scriptedServer
	cfg     infer.Config
	// executor is that of the worker that was started last.
	executor *infer.Executor
}

func runMatrix(t *testing.T, items, servers int, streamed bool, bad badAnswer, test func(m *matrix)) {
	withMatrix(t, items, items, servers, streamed, bad, func(m *matrix) {
		defer m.startWorker("w")()
		m.send(0)
		test(m)
	})
}

// withMatrix plans a run of items in shards of some, and calls test. It starts no worker.
func withMatrix(t *testing.T, items, shard, servers int, streamed bool, bad badAnswer, test func(m *matrix)) {
	synctest.Test(t, func(t *testing.T) {
		m := &matrix{Ports: hosttest.New(), t: t}
		manifest := inputtest.Manifest(shard)
		longest := 16
		manifest.Config.Sampling.MaxTokens = &longest
		inputtest.Plan(t, m.Ports, manifest, inputtest.Prompts(0, items))
		cfg := balancer.Config{InFlight: 16, Silence: 30 * time.Second}
		if streamed {
			cfg.Stream = balancer.Always
		}
		var names []string
		for n := range servers {
			s := &scriptedServer{conns: make(chan net.Conn), bad: bad, asked: map[string]int{},
				meets: func(string) bool { return false }}
			web := &http.Server{Handler: s}
			go func() { _ = web.Serve(s) }()
			transport := &http.Transport{MaxIdleConnsPerHost: 64,
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					s.conns <- far
					return near, nil
				}}
			name := fmt.Sprintf("http://server-%d/v1", n)
			c, err := openai.New(openai.Config{BaseURL: name, HTTPClient: &http.Client{Transport: transport},
				Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			m.servers, names = append(m.servers, s), append(names, name)
			cfg.Servers = append(cfg.Servers, balancer.Backend{Name: name, Server: c})
			defer func() { transport.CloseIdleConnections(); close(s.conns); _ = web.Close() }()
		}
		e := balancer.New(cfg)
		defer func() { _ = e.Close() }()
		m.cfg = infer.Config{Engine: e, Servers: names, Clock: m.Clock, Log: m.Log, ProgressTimeout: 30 * time.Second,
			MaxOutage: time.Minute}
		test(m)
		wholes := 0
		for _, s := range m.servers {
			s.mu.Lock()
			wholes += s.wholes
			s.mu.Unlock()
		}
		if (wholes == 0) != streamed {
			t.Errorf("%d answers are whole, streamed: %v", wholes, streamed)
		}
	})
}

// startWorker starts a worker. The returned function ends it.
func (m *matrix) startWorker(id string) (end func()) {
	m.executor = infer.New(m.cfg)
	w := workerOf(m.Ports, id, "", 16, m.executor)
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	return func() { w.Drain("the test ends it"); <-done; cancel() }
}

// send sends the message of a shard.
func (m *matrix) send(shard int) {
	work := events.Work{Run: string(run), Pool: "default", Shard: shard, Row: shard}
	if err := m.Send(m.t.Context(), host.WorkQueue("default"), work); err != nil {
		m.t.Fatal(err)
	}
}

// await waits until the first shard is done, for a minute at most.
func (m *matrix) await() shard.Doc { return m.awaitShard(0) }

func (m *matrix) awaitShard(n int) shard.Doc {
	m.t.Helper()
	for range 600 {
		advance(100 * time.Millisecond)
		var d shard.Doc
		if _, found, _ := host.Load(m.t.Context(), m.Docs, identity.ShardKey(run, n), &d); found && d.State == shard.Done {
			return d
		}
	}
	m.t.Fatalf("the shard is not done: %+v", hosttest.Load[shard.Doc](m.t, m.Ports, identity.ShardKey(run, n)))
	return shard.Doc{}
}

func (m *matrix) requests() (items, questions int) {
	for _, s := range m.servers {
		i, q := s.count()
		items, questions = items+i, questions+q
	}
	return items, questions
}

// everyBadAnswer runs the test for every bad answer, with streams alone and with whole
// answers by default, on one server and on two.
func everyBadAnswer(t *testing.T, items int, test func(m *matrix, bad badAnswer)) {
	for name, bad := range badAnswers {
		for _, streamed := range []bool{true, false} {
			for servers := 1; servers <= 2; servers++ {
				t.Run(fmt.Sprintf("%s, streamed %v, %d servers", name, streamed, servers), func(t *testing.T) {
					t.Parallel()
					runMatrix(t, items, servers, streamed, bad, func(m *matrix) { test(m, bad) })
				})
			}
		}
	}
}

// One prompt gets no answer: it gets an error row with the server's words after few
// tries, and no other item pays for them.
func TestMatrixOneItem(t *testing.T) {
	t.Parallel()
	everyBadAnswer(t, 60, func(m *matrix, bad badAnswer) {
		for _, s := range m.servers {
			s.meets = func(prompt string) bool { return prompt == "prompt 7" || prompt == "7" }
		}
		d := m.await()
		if d.Counts.Failed != 1 || d.Counts.ByClass[string(bad.class)] != 1 || d.Counts.OK != 59 {
			m.t.Errorf("counts %+v, want one failed item of class %s", d.Counts, bad.class)
		}
		rows := hosttest.Object(m.t, m.Ports, d.Result.Key)
		if !strings.Contains(rows[d.OutputLen:], bad.says) {
			m.t.Errorf("error row %s, want the words %q", rows[d.OutputLen:], bad.says)
		}
		if items, questions := m.requests(); items > 60+16 || questions > 16 {
			m.t.Errorf("%d requests and %d small questions for 60 items", items, questions)
		}
	})
}

// No request gets an answer: few are spent, no item fails, and the run asks to be paused
// unless it may pass. When it is mended and resumed, every item is answered.
func TestMatrixAllItems(t *testing.T) {
	t.Parallel()
	everyBadAnswer(t, 60, func(m *matrix, bad badAnswer) {
		for _, s := range m.servers {
			s.meets = func(string) bool { return true }
		}
		advance(12 * time.Second)
		d := &fixture{Ports: m.Ports, t: m.t}
		refused := d.events()
		if (len(refused) == 0) != bad.outage {
			m.t.Errorf("events %+v; it may pass: %v", refused, bad.outage)
		}
		if len(refused) > 0 && !strings.Contains(refused[0].Reason, bad.says) {
			m.t.Errorf("the reason is %q, want the words %q", refused[0].Reason, bad.says)
		}
		if items, _ := m.requests(); items > 20 {
			m.t.Errorf("%d requests, want at most 20", items)
		}
		doc := hosttest.Load[shard.Doc](m.t, m.Ports, identity.ShardKey(run, 0))
		if doc.Counts.Failed > 0 || doc.State != shard.Running {
			m.t.Errorf("the shard is %+v", doc)
		}
		for _, s := range m.servers {
			s.mu.Lock()
			s.meets = func(string) bool { return false }
			s.mu.Unlock()
		}
		if len(refused) > 0 {
			c := record.Control{Schema: record.Schema, Sequence: 1, Desired: record.DesiredPause, Refused: refused[0].Outcome}
			hosttest.Save(m.t, m.Ports, record.ControlKey(run), c)
			advance(6 * time.Second)
			c.Sequence, c.Desired = 2, record.DesiredRun
			hosttest.Save(m.t, m.Ports, record.ControlKey(run), c)
			advance(6 * time.Second)
			m.send(0)
		}
		if doc := m.await(); doc.Counts.OK != 60 {
			m.t.Errorf("after it was mended: %+v", doc.Counts)
		}
	})
}

// The servers, or one of two, are away for 3 s: no item fails, and few requests are
// spent.
func TestMatrixBlip(t *testing.T) {
	t.Parallel()
	everyBadAnswer(t, 400, func(m *matrix, _ badAnswer) {
		from := time.Now().Add(150 * time.Millisecond)
		m.servers[0].meets = func(string) bool {
			since := time.Since(from)
			return since > 0 && since < 3*time.Second
		}
		d := m.await()
		items, questions := m.requests()
		if d.Counts.OK != 400 || items+questions > 440 {
			m.t.Errorf("%+v after %d requests and %d small questions", d.Counts, items, questions)
		}
	})
}

// One of two servers never answers: the other answers all, and few requests are spent.
// The first is set aside, with its words, until it answers.
func TestMatrixOneBadServerOfTwo(t *testing.T) {
	t.Parallel()
	for name, bad := range badAnswers {
		for _, streamed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed %v", name, streamed), func(t *testing.T) {
				t.Parallel()
				runMatrix(t, 400, 2, streamed, bad, func(m *matrix) {
					m.servers[1].meets = func(string) bool { return true }
					d := m.await()
					spent, _ := m.servers[1].count()
					if d.Counts.OK != 400 || spent > 20 {
						m.t.Errorf("%+v; the bad server got %d requests", d.Counts, spent)
					}
					aside := m.executor.SetAside()
					said := aside[m.cfg.Servers[1]]
					if s := m.cfg.Engine.(*balancer.Balancer).ServerStatuses()[1]; s.State != balancer.Closed {
						said = s.Why // the balancer was first
					}
					if aside[m.cfg.Servers[0]] != "" || !strings.Contains(said, bad.says) {
						m.t.Errorf("the bad server says %q, want the words %q; set aside are %v", said, bad.says, aside)
					}
				})
			})
		}
	}
}
