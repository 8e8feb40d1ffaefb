package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/engine/openai"
)

// httpServers are the inference servers of a world whose workers reach them as in
// production: by the client of OpenAI-compatible servers and the balancer. There are no
// sockets: requests and responses are passed in memory. It is safe for concurrent use.
type httpServers struct {
	*world
	servers []*httpServer
	metrics bool // they report metrics
	faults  serverFaults

	mu sync.Mutex
	serverAudit
}

// progressTimeout is short, so that requests that hang take little of a simulation.
const progressTimeout = 15 * time.Second

// drawHTTPServers draws the inference servers of an eighth of all worlds, or of this one
// certainly; nil in the others, whose workers have the fakeEngine alone.
func (w *world) drawHTTPServers(certainly bool) *httpServers {
	if w.rand.intN("http servers", 8) > 0 && !certainly {
		return nil
	}
	h := &httpServers{world: w, metrics: w.poison == killsServer || w.rand.intN("metrics", 2) == 0,
		serverAudit: newServerAudit()}
	for n := range 1 + w.rand.intN("http server count", 2) {
		h.servers = append(h.servers, &httpServer{httpServers: h, number: n, model: "mock"})
	}
	h.faults = w.drawServerFaults(len(h.servers))
	if w.rand.intN("other model", 4) == 0 {
		h.servers[len(h.servers)-1].model = "other"
	}
	for n, bad := range h.faults.prompts {
		w.tracef("servers: bad prompts of kind %d meet %s", n, bad.name)
	}
	for _, e := range h.faults.episodes {
		w.tracef("servers: %s on server %d from %s to %s", e.bad.name, e.server, e.from, e.to)
	}
	return h
}

// connect returns an engine over the servers for a process, and the servers' names. The
// caller closes the engine.
func (h *httpServers) connect(p *process, inFlight int) (e *balancer.Balancer, names []string) {
	cfg := balancer.Config{InFlight: inFlight, Log: h.ports(p).Log}
	for _, s := range h.servers {
		c, err := openai.New(openai.Config{BaseURL: s.url(), MaxInFlight: inFlight, Logger: cfg.Log,
			HTTPClient: &http.Client{Transport: connection{p, s}}})
		if err != nil {
			h.t.Fatal(err)
		}
		cfg.Servers = append(cfg.Servers, balancer.Backend{Name: s.url(), Server: c})
		names = append(names, s.url())
	}
	return balancer.New(cfg), names
}

// httpServer is one OpenAI-compatible inference server.
type httpServer struct {
	*httpServers
	number int
	model  string // that it says it answers with

	// mu of httpServers guards the fields.
	starts  int
	down    bool
	running int
	crashed chan struct{} // closed when it crashes; nil before the first request of a start
}

func (s *httpServer) url() string { return fmt.Sprintf("http://server-%d/v1", s.number) }

// connection is the process's way to the server.
type connection struct {
	*process
	server *httpServer
}

// RoundTrip implements http.RoundTripper.
func (c connection) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	pause(ctx, c.world.rand.duration("net/"+c.name, 10*time.Microsecond, time.Millisecond))
	if err := c.checkAlive(ctx); err != nil {
		return nil, err
	}
	status, text, err := c.server.serve(ctx, c.process, req, body)
	if alive := c.checkAlive(ctx); alive != nil {
		return nil, alive
	}
	if err != nil {
		return nil, err
	}
	kind := "application/json"
	if strings.HasPrefix(text, "data:") {
		kind = "text/event-stream"
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Request: req,
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}, nil
}

// smallQuestion is in a request that asks nothing of a run.
const smallQuestion = `"content":"hi"`

// serve serves one HTTP request. It returns the status and the body of the response.
func (s *httpServer) serve(ctx context.Context, p *process, req *http.Request, body []byte) (int, string, error) {
	crashed, up := s.enter()
	if !up {
		return 0, "", errRefused()
	}
	defer s.leave()
	hint := req.Method == http.MethodGet
	bad, until, isBad := s.meets(hint)
	if isBad && bad.how == refuses {
		return 0, "", errRefused()
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	switch {
	case isBad:
		return s.fail(ctx, req, bad, until)
	case hint:
		return s.hint(req.URL.Path)
	}
	body = withoutStream(body)
	text := string(body)
	isItem := !strings.Contains(text, smallQuestion)
	if isItem {
		s.ask(p, text)
	}
	pause(ctx, s.rand.duration("http/"+text, time.Millisecond, 900*time.Millisecond))
	if ctx.Err() == nil && strings.Contains(text, poisonPrompt) {
		switch s.poison {
		case killsWorker:
			s.tracef("%s crashes at a prompt", p.name)
			p.crash()
		case killsServer:
			s.crash(crashed)
		}
	}
	select {
	case <-crashed:
		return 0, "", errReset
	default:
	}
	if bad, ok := s.faults.badPromptIn(text); ok {
		return s.fail(ctx, req, bad, 0)
	}
	most := 2 + int(20*s.faults.busy) // fewer than prove that the item is at fault: see maxMoods
	if isItem && s.faultsOn() && s.rand.chanceAtMost("mood/"+text, s.faults.busy, most) {
		return http.StatusTooManyRequests, errorBody("busy"), nil
	}
	status, reply, err := s.reply(ctx, req, body)
	if isItem && ctx.Err() == nil && status == http.StatusOK {
		s.answer()
	}
	return status, reply, err
}

// errReset is a connection that broke.
var errReset = errors.New("read: connection reset by peer")

// errRefused returns the error of a connection that the server does not take.
func errRefused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// meets returns what a request meets now.
func (s *httpServer) meets(hint bool) (bad badReply, until time.Duration, isBad bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.meets(s.number, time.Since(s.startedAt), hint)
}

// enter begins a request; false while the server is down.
func (s *httpServer) enter() (crashed chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, false
	}
	if s.crashed == nil {
		s.crashed = make(chan struct{})
	}
	s.running++
	return s.crashed, true
}

func (s *httpServer) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// crash ends the start of the server to which crashed belongs. The server starts again
// after a drawn time.
func (s *httpServer) crash(crashed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed != crashed {
		return // another request has crashed it
	}
	close(crashed)
	s.starts, s.down, s.crashed = s.starts+1, true, nil
	s.tracef("server %d crashes, crash %d", s.number, s.starts)
	time.AfterFunc(s.rand.duration("server start", 100*time.Millisecond, 9*time.Second), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.down = false
	})
}

// fail is the response of a request that meets the bad reply, until a time if it hangs; 0
// is for good.
func (s *httpServer) fail(
	ctx context.Context, req *http.Request, bad badReply, until time.Duration,
) (status int, body string, err error) {
	switch bad.how {
	case hangs:
		if until == 0 {
			<-ctx.Done()
			return 0, "", ctx.Err()
		}
		pause(ctx, until-time.Since(s.startedAt))
		return 0, "", errReset
	case breaks:
		pause(ctx, 20*time.Millisecond)
		return 0, "", errReset
	}
	pause(ctx, time.Millisecond)
	if bad.event && req.Method == http.MethodPost {
		return 200, "data: " + bad.body + "\n\ndata: [DONE]\n\n", nil
	}
	return bad.status, bad.body, nil
}

// hint is the response of a request that asks for no answer.
func (s *httpServer) hint(path string) (int, string, error) {
	switch {
	case strings.HasSuffix(path, "/models"):
		return 200, fmt.Sprintf(`{"object":"list","data":[{"id":%q}]}`, s.model), nil
	case strings.HasSuffix(path, "/metrics") && s.metrics:
		s.mu.Lock()
		defer s.mu.Unlock()
		return 200, fmt.Sprintf("process_start_time_seconds %d\nvllm:num_requests_running %d\nvllm:num_requests_waiting 0\n",
			1000+s.starts, s.running-1), nil
	case strings.HasSuffix(path, "/health"):
		return 200, "", nil
	}
	return 404, "404 page not found", nil
}

// withoutStream returns the body of a request as its sender made it, before the client
// added that it wants a stream.
func withoutStream(body []byte) []byte {
	if i := bytes.Index(body, []byte(`,"stream"`)); i >= 0 {
		return append(bytes.Clone(body[:i]), '}')
	}
	return body
}

// reply is the response of a request that is answered, streamed or whole.
func (s *httpServer) reply(ctx context.Context, req *http.Request, body []byte) (int, string, error) {
	chat := strings.HasSuffix(req.URL.Path, "/chat/completions")
	r := engine.Request{Endpoint: engine.Completion, Body: body}
	if chat {
		r.Endpoint = engine.Chat
	}
	a, err := answer(ctx, r)
	if err != nil {
		return 400, fmt.Sprintf(`{"error":{"message":%q,"code":"content_policy_violation"}}`, refusedWords), nil
	}
	text, err := json.Marshal(a.Text)
	if err != nil {
		return 0, "", err
	}
	stream := len(body) > 0 && req.ContentLength > int64(len(body))
	format := `"text":%s`
	switch {
	case chat && stream:
		format = `"delta":{"content":%s}`
	case chat:
		format = `"message":{"role":"assistant","content":%s}`
	}
	begin := fmt.Sprintf(`{"id":"x-%d","object":"x","created":1,"model":%q,"choices":[`, s.rand.uint64("id")%1000, s.model)
	choice := fmt.Sprintf(`{"index":0,`+format+`,"logprobs":null,"finish_reason":%q}`, text, a.FinishReason)
	usage := fmt.Sprintf(`],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, a.Usage.PromptTokens,
		a.Usage.CompletionTokens, a.Usage.PromptTokens+a.Usage.CompletionTokens)
	if !stream {
		return 200, begin + choice + usage, nil
	}
	return 200, "data: " + begin + choice + "]}\n\ndata: " + begin + usage + "\n\ndata: [DONE]\n\n", nil
}
