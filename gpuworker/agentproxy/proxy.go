package agentproxy

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/cost"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/onlinewire"
)

// Limits bound what an agent may use of its model. 0 is no limit.
type Limits struct {
	Requests   int64
	Tokens     int64 // of prompts and completions
	NanoUSD    int64 // billionths of a dollar, at the prices of the engine
	Concurrent int   // requests at once; others wait
}

// The names of the limits in Use.
const (
	RequestLimit = "requests"
	TokenLimit   = "tokens"
	DollarLimit  = "dollars"
)

// Use is what an agent has used.
type Use struct {
	Requests         int64 // that were passed on
	PromptTokens     int64
	CompletionTokens int64
	NanoUSD          int64
	Refused          int64 // requests that came after a limit was reached
	Failed           int64 // requests that got no answer of a server: it was not the agent's fault
	// Limit is the limit for which a request was refused first; "" if none was.
	Limit string
}

// Proxy is the server of one agent. It is safe for concurrent use.
type Proxy struct {
	servers engine.Passer
	model   string
	limits  Limits
	prices  cost.TokenPrices
	bodies  *onlinewire.Bodies
	slots   chan struct{} // nil without a limit

	mu      sync.Mutex
	use     Use
	limited chan struct{}
}

// New returns a proxy to the servers of a model. All proxies of a process share bodies.
func New(servers engine.Passer, model string, limits Limits, prices cost.TokenPrices,
	bodies *onlinewire.Bodies) *Proxy {
	p := &Proxy{servers: servers, model: model, limits: limits, prices: prices, bodies: bodies,
		limited: make(chan struct{})}
	if limits.Concurrent > 0 {
		p.slots = make(chan struct{}, limits.Concurrent)
	}
	return p
}

// Use returns what the agent has used until now.
func (p *Proxy) Use() Use {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.use
}

// Limited is closed when a request is refused for a limit. The agent may be ended then.
func (p *Proxy) Limited() <-chan struct{} { return p.limited }

// Serve answers requests until ctx ends, which cuts off those in progress.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	return listen.Bounds{ShutdownTimeout: time.Millisecond}.Serve(ctx, l, p)
}

// bodyWait is how long a request waits for room for its body.
const bodyWait = time.Minute

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	switch {
	case ok && path == "models" && r.Method == http.MethodGet:
		p.listModels(w)
		return
	case !ok || r.Method != http.MethodPost || !slices.Contains(onlinewire.Paths(), path):
		problem(w, http.StatusNotFound, onlinewire.InvalidRequest, "not_found",
			"agents may post to /v1/"+strings.Join(onlinewire.Paths(), ", /v1/"))
		return
	}
	body, release, err := p.bodies.Read(w, r, bodyWait)
	if err != nil {
		refuse(w, err)
		return
	}
	defer release()
	if body, err = p.rewrite(path, body); err != nil {
		problem(w, http.StatusBadRequest, onlinewire.InvalidRequest, "invalid", err.Error())
		return
	}
	if !p.enter(r.Context()) {
		return // the agent has left
	}
	defer p.leave()
	if limit := p.begin(); limit != "" {
		problem(w, http.StatusTooManyRequests, onlinewire.RateLimit, "trial_limit",
			"this trial has used all of its "+limit)
		return
	}
	p.pass(w, r, path, body)
}

// listModels answers with the one model that there is.
func (p *Proxy) listModels(w http.ResponseWriter) {
	listen.WriteJSON(w, http.StatusOK, map[string]any{"object": "list",
		"data": []map[string]any{{"id": p.model, "object": "model", "created": 0, "owned_by": "rollout"}}})
}

// rewrite names the model, and lets a stream end with the count of its tokens.
func (p *Proxy) rewrite(path string, body []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, fault.New(fault.Invalid, "the body is not a JSON object")
	}
	model, err := json.Marshal(p.model)
	if err != nil {
		return nil, err
	}
	members["model"] = model
	if string(members["stream"]) == "true" && path != "responses" { // which always end with it
		options := map[string]json.RawMessage{}
		if given, ok := members["stream_options"]; ok && json.Unmarshal(given, &options) != nil {
			return nil, fault.New(fault.Invalid, "stream_options is not an object")
		}
		if options == nil { // it was null
			options = map[string]json.RawMessage{}
		}
		options["include_usage"] = json.RawMessage("true")
		if members["stream_options"], err = json.Marshal(options); err != nil {
			return nil, err
		}
	}
	return json.Marshal(members)
}

// enter waits until the agent may have one more request in progress. It is false if the agent
// leaves before.
func (p *Proxy) enter(ctx context.Context) bool {
	if p.slots == nil {
		return true
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *Proxy) leave() {
	if p.slots != nil {
		<-p.slots
	}
}

// begin counts a request that is passed on, or returns the limit for which it is not.
func (p *Proxy) begin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	reached := func(limit, used int64) bool { return limit > 0 && used >= limit }
	limit := ""
	switch {
	case reached(p.limits.Requests, p.use.Requests):
		limit = RequestLimit
	case reached(p.limits.Tokens, p.use.PromptTokens+p.use.CompletionTokens):
		limit = TokenLimit
	case reached(p.limits.NanoUSD, p.use.NanoUSD):
		limit = DollarLimit
	default:
		p.use.Requests++
		return ""
	}
	p.use.Refused++
	if p.use.Limit == "" {
		p.use.Limit = limit
		close(p.limited)
	}
	return limit
}

// pass passes the request on, and its answer back.
func (p *Proxy) pass(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	a, err := p.servers.Pass(r.Context(), engine.RawRequest{Path: path, Body: body})
	if err != nil {
		if r.Context().Err() == nil {
			p.failed()
			refuse(w, err)
		}
		return
	}
	defer a.Body.Close()
	if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden {
		// It is about the worker's key. The agent has none.
		p.failed()
		refuse(w, fault.New(fault.Unavailable, "the inference server refuses the worker's key"))
		return
	}
	from, err := unpacked(a)
	if err != nil {
		p.failed()
		refuse(w, err)
		return
	}
	onlinewire.CopyHeaders(w.Header(), a.Header)
	w.Header().Del("Content-Encoding")
	w.WriteHeader(a.Status)
	var meter meter
	err = copyAnswer(w, from, &meter)
	if a.Status < http.StatusBadRequest {
		p.count(meter.tokens())
	}
	if err != nil && r.Context().Err() == nil {
		p.failed()
		panic(http.ErrAbortHandler) // the agent must not take a part for the whole
	}
}

// unpacked returns the answer's body as text. Servers are not asked to pack it, and some do.
func unpacked(a engine.RawAnswer) (io.Reader, error) {
	switch encoding := a.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return a.Body, nil
	case "gzip":
		in, err := gzip.NewReader(a.Body)
		return in, fault.WithKind(fault.Unavailable, err, "unpack the answer")
	default:
		return nil, fault.New(fault.Unavailable, "the answer is packed with %s", encoding)
	}
}

// copyAnswer writes what arrives, piece by piece, and lets the meter see it. It returns the
// error of the source.
func copyAnswer(w http.ResponseWriter, from io.Reader, m *meter) error {
	conn := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for gone := false; ; {
		n, err := from.Read(buf)
		m.see(buf[:n])
		if n > 0 && !gone {
			_, writeErr := w.Write(buf[:n])
			gone = writeErr != nil || conn.Flush() != nil // the request's context ends soon
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *Proxy) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use.Failed++
}

// count adds the tokens of an answer.
func (p *Proxy) count(prompt, completion int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use.PromptTokens = cost.Sum(p.use.PromptTokens, prompt)
	p.use.CompletionTokens = cost.Sum(p.use.CompletionTokens, completion)
	p.use.NanoUSD = cost.Sum(p.use.NanoUSD, p.prices.NanoUSD(prompt, completion))
}

// refuse answers that there is no answer of a server.
func refuse(w http.ResponseWriter, err error) {
	switch fault.KindOf(err) {
	case fault.Exhausted:
		problem(w, http.StatusRequestEntityTooLarge, onlinewire.InvalidRequest, "too_large", err.Error())
	case fault.Invalid:
		problem(w, http.StatusBadRequest, onlinewire.InvalidRequest, "invalid", err.Error())
	default:
		w.Header().Set("Retry-After", "1")
		onlinewire.WriteProblem(w, http.StatusServiceUnavailable, onlinewire.Problem{
			Message: "the model does not answer: " + err.Error(), Type: onlinewire.ServerError, Code: "unavailable"})
	}
}

// problem answers with an error that a repeated request would meet again.
func problem(w http.ResponseWriter, status int, kind, code, text string) {
	w.Header().Set("X-Should-Retry", "false")
	onlinewire.WriteProblem(w, status, onlinewire.Problem{Message: text, Type: kind, Code: code})
}
