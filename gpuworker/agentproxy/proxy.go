package agentproxy

import (
	"compress/gzip"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/cost"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/onlinewire"
)

// Limits bound what an agent may use of its model. 0 is no limit.
type Limits struct {
	Requests   int64 // a request for n answers counts as n
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
	Estimated        int64 // requests whose tokens no server has counted; they are part of the sums
	Refused          int64 // requests that came after a limit was reached
	Forbidden        int64 // requests with a member that agents may not send: they were not passed on
	// FirstForbidden says what was wrong with the first of them; "" if there is none.
	FirstForbidden string
	Failed         int64 // requests that got no answer of a server: it was not the agent's fault
	// LastFailed says that no request was answered after the last one in Failed.
	LastFailed bool
	// Limit is the limit for which a request was refused first; "" if none was.
	Limit string
}

// Options are what a proxy works with.
type Options struct {
	Servers engine.Passer // of the model
	Model   string
	Limits  Limits
	Prices  cost.TokenPrices
	Bodies  *onlinewire.Bodies // shared by all proxies of a process
	// Key is what the agent must send as its bearer token; "" is anything.
	Key string
	// Begin is an optional hook that waits until one more request may begin, and is told of its
	// end. An error refuses the request as one without an answer of a server.
	Begin func(ctx context.Context, promptBytes int, maxTokens int64) (ended func(Tokens), err error)
}

// Tokens are those of a request that has ended.
type Tokens struct {
	Prompt, Completion int64
	Estimated          bool // no server has counted them
	Answered           bool
	RateLimit          ratelimit.Report // what the server says about its limits
}

// Proxy is the server of one agent. It is safe for concurrent use.
type Proxy struct {
	Options
	slots chan struct{} // nil without a limit

	mu       sync.Mutex
	use      Use
	inFlight int
	reserved reserve       // what requests in flight may take
	ended    chan struct{} // closed when one ends
	limited  chan struct{}
	keyWorks bool // a server has answered with the worker's key
}

// reserve is what requests may take, as far as that is known before.
type reserve struct{ tokens, nanoUSD int64 }

// New returns a proxy.
func New(o Options) *Proxy {
	p := &Proxy{Options: o, ended: make(chan struct{}), limited: make(chan struct{})}
	if o.Limits.Concurrent > 0 {
		p.slots = make(chan struct{}, o.Limits.Concurrent)
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

// maxBody bounds the body of an agent's request: several of them fit into the memory that all
// trials of a process share.
const maxBody = onlinewire.MaxBody / 8

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	switch {
	case !p.admits(r):
		problem(w, http.StatusUnauthorized, onlinewire.InvalidRequest, "invalid_api_key", "use the key in OPENAI_API_KEY")
		return
	case ok && path == "models" && r.Method == http.MethodGet:
		p.listModels(w)
		return
	case !ok || r.Method != http.MethodPost || !slices.Contains(onlinewire.Paths(), path):
		problem(w, http.StatusNotFound, onlinewire.InvalidRequest, "not_found",
			"agents may post to /v1/"+strings.Join(onlinewire.Paths(), ", /v1/"))
		return
	}
	if !p.enter(r.Context()) { // before the body, so that no agent holds the memory of many
		return // the agent has left
	}
	defer p.leave()
	asked, release, err := p.read(w, r, path)
	var v *violation
	switch {
	case errors.As(err, &v):
		p.forbid(w, v)
		return
	case fault.Is(err, fault.Throttled): // other trials have taken the memory
		p.unanswered(w, r, err)
		return
	case err != nil:
		refuse(w, err)
		return
	}
	defer release()
	limit, ok := p.begin(r.Context(), &asked)
	if !ok {
		return
	}
	if limit != "" {
		problem(w, http.StatusTooManyRequests, onlinewire.RateLimit, "trial_limit",
			"this trial has used all of its "+limit)
		return
	}
	var used Tokens
	defer func() { p.end(asked, used) }() // also of one that panics
	p.ask(w, r, path, asked, &used)
}

// forbid answers a request with a member that agents may not send, and counts it.
func (p *Proxy) forbid(w http.ResponseWriter, v *violation) {
	p.mu.Lock()
	if p.use.Forbidden++; p.use.FirstForbidden == "" {
		p.use.FirstForbidden = v.Error()
	}
	p.mu.Unlock()
	w.Header().Set("X-Should-Retry", "false")
	onlinewire.WriteProblem(w, http.StatusBadRequest, onlinewire.Problem{Message: v.Error(), Param: &v.member,
		Type: onlinewire.InvalidRequest, Code: "not_allowed"})
}

// admits reports whether the request has the agent's key.
func (p *Proxy) admits(r *http.Request) bool {
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	return p.Key == "" || subtle.ConstantTimeCompare([]byte(given), []byte(p.Key)) == 1
}

// read reads a request. Its memory is given back by release.
func (p *Proxy) read(w http.ResponseWriter, r *http.Request, path string) (request, func(), error) {
	if r.ContentLength > maxBody {
		return request{}, nil, fault.New(fault.Exhausted, "the body has %d bytes, more than %d MiB", r.ContentLength,
			maxBody>>20)
	}
	body, release, err := p.Bodies.Read(w, r, maxBody, bodyWait)
	if err != nil {
		return request{}, nil, err
	}
	asked, err := parse(path, p.Model, body)
	if err != nil {
		release()
		return request{}, nil, err
	}
	return asked, release, nil
}

// listModels answers with the one model that there is.
func (p *Proxy) listModels(w http.ResponseWriter) {
	listen.WriteJSON(w, http.StatusOK, map[string]any{"object": "list",
		"data": []map[string]any{{"id": p.Model, "object": "model", "created": 0, "owned_by": "rollout"}}})
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

// begin counts a request that is passed on, or returns the limit for which it is not. What may
// pass a limit together with requests in flight waits for their end. What may pass it alone gets
// an answer of as many tokens as are left. begin returns false if ctx ends first.
func (p *Proxy) begin(ctx context.Context, asked *request) (limit string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if limit := p.reached(*asked); limit != "" {
			p.use.Refused++
			if p.use.Limit == "" {
				p.use.Limit = limit
				close(p.limited)
			}
			return limit, true
		}
		if p.fits(*asked) {
			break
		}
		if p.inFlight == 0 {
			asked.clamp(p.left(*asked))
			break
		}
		ended := p.ended
		p.mu.Unlock()
		select {
		case <-ended:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return "", false
		}
	}
	p.inFlight++
	p.use.Requests += asked.answers
	p.reserved.tokens += asked.tokens()
	p.reserved.nanoUSD += p.Prices.NanoUSD(asked.promptTokens(), asked.completionTokens())
	return "", true
}

// reached returns the limit that is used up. The caller holds p.mu.
func (p *Proxy) reached(asked request) string {
	l, u := p.Limits, p.use
	switch {
	case l.Requests > 0 && u.Requests+asked.answers > l.Requests:
		return RequestLimit
	case l.Tokens > 0 && u.PromptTokens+u.CompletionTokens >= l.Tokens:
		return TokenLimit
	case l.NanoUSD > 0 && u.NanoUSD >= l.NanoUSD:
		return DollarLimit
	}
	return ""
}

// fits reports whether the request stays within the limits beside those in flight. The caller
// holds p.mu.
func (p *Proxy) fits(asked request) bool {
	l, u := p.Limits, p.use
	dollars := p.Prices.NanoUSD(asked.promptTokens(), asked.completionTokens())
	return (l.Tokens == 0 || u.PromptTokens+u.CompletionTokens+p.reserved.tokens+asked.tokens() <= l.Tokens) &&
		(l.NanoUSD == 0 || u.NanoUSD+p.reserved.nanoUSD+dollars <= l.NanoUSD)
}

// left returns how many tokens the answers to a request that is alone in flight may have until a
// limit is reached. The caller holds p.mu.
func (p *Proxy) left(asked request) int64 {
	l, u := p.Limits, p.use
	left := int64(math.MaxInt64)
	if l.Tokens > 0 {
		left = l.Tokens - u.PromptTokens - u.CompletionTokens - asked.promptTokens()
	}
	const many = 1_000_000 // one may cost less than a billionth of a dollar
	if price := p.Prices.NanoUSD(0, many); l.NanoUSD > 0 && price > 0 {
		dollars := max(0, l.NanoUSD-u.NanoUSD-p.Prices.NanoUSD(asked.promptTokens(), 0))
		left = min(left, int64(float64(dollars)/float64(price)*many))
	}
	return left
}

// end counts what a request has taken that begin let through.
func (p *Proxy) end(asked request, t Tokens) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	p.reserved.tokens -= asked.tokens()
	p.reserved.nanoUSD -= p.Prices.NanoUSD(asked.promptTokens(), asked.completionTokens())
	p.use.PromptTokens = cost.Sum(p.use.PromptTokens, t.Prompt)
	p.use.CompletionTokens = cost.Sum(p.use.CompletionTokens, t.Completion)
	p.use.NanoUSD = cost.Sum(p.use.NanoUSD, p.Prices.NanoUSD(t.Prompt, t.Completion))
	if t.Estimated {
		p.use.Estimated++
	}
	close(p.ended)
	p.ended = make(chan struct{})
}

// ask passes the request on, and its answer back. It says in used what that took.
func (p *Proxy) ask(w http.ResponseWriter, r *http.Request, path string, asked request, used *Tokens) {
	if p.Begin != nil {
		ended, err := p.Begin(r.Context(), len(asked.body), asked.maxTokens)
		if err != nil {
			p.unanswered(w, r, err)
			return
		}
		defer func() { ended(*used) }()
	}
	a, err := p.Servers.Pass(r.Context(), engine.RawRequest{Path: path, Body: asked.body})
	if err != nil {
		p.unanswered(w, r, err)
		if r.Context().Err() != nil { // the agent has left, and a server may have worked for it
			*used = Tokens{Prompt: asked.promptTokens(), Completion: asked.abandoned(), Estimated: true}
		}
		used.RateLimit = engine.RateLimitOf(err)
		return
	}
	defer a.Body.Close()
	defer func() { used.RateLimit = a.RateLimit }()
	if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden {
		p.refused(w, r)
		return
	}
	from, err := unpacked(a)
	if err != nil {
		p.unanswered(w, r, err)
		return
	}
	onlinewire.CopyHeaders(w.Header(), a.Header)
	w.Header().Del("Content-Encoding")
	w.WriteHeader(a.Status)
	var meter meter
	err = copyAnswer(w, from, &meter)
	if a.Status < http.StatusBadRequest {
		*used = meter.tokens(asked)
		if err != nil && r.Context().Err() != nil && !meter.counted {
			used.Completion = max(used.Completion, asked.abandoned())
		}
	}
	used.Answered = err == nil && a.Status < http.StatusBadRequest
	switch {
	case err == nil && (a.Status == http.StatusTooManyRequests || a.Status >= http.StatusInternalServerError):
		p.failed()
	case err == nil:
		p.answered(used.Answered)
	case r.Context().Err() == nil:
		p.failed()
		panic(http.ErrAbortHandler) // the agent must not take a part for the whole
	}
}

// refused answers that the server refuses the request with 401 or 403, without its text, which may
// name the worker's key. If the key has worked before, it is about what the agent asks for.
func (p *Proxy) refused(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	keyWorks := p.keyWorks
	p.mu.Unlock()
	if !keyWorks {
		p.unanswered(w, r, fault.New(fault.Unavailable, "the inference server refuses the worker's key"))
		return
	}
	p.answered(true)
	problem(w, http.StatusForbidden, onlinewire.InvalidRequest, "refused", "the inference server refuses this request")
}

// unanswered answers that no server did, which is no fault of an agent that is still there.
func (p *Proxy) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		p.failed()
		refuse(w, fault.WithKind(fault.Unavailable, err, "ask the model"))
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

// failed counts a request that got no answer of a server.
func (p *Proxy) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use.Failed++
	p.use.LastFailed = true
}

// answered notes that a server has answered a request, and whether it accepted the worker's key.
func (p *Proxy) answered(keyWorks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use.LastFailed = false
	p.keyWorks = p.keyWorks || keyWorks
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
