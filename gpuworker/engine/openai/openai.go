// Package openai is a client of OpenAI-compatible HTTP servers: vLLM, SGLang,
// llama.cpp, transformers serve, hosted APIs.
//
// It asks for streams, in which each token is a sign of work, or for whole answers, as
// the request says; both give the same Answer. What servers send is untrusted: sizes
// are bounded and text is made valid UTF-8. A lone surrogate escape, or a byte that is not UTF-8, becomes U+FFFD. NaN
// and Infinity, which Python servers write among log probabilities, become null.
//
// The package never retries, never follows a redirect and never shows the key. It
// changes the bytes of a request in two cases only: when it sends a completion as
// a chat (see Answer), and when it lowers a max_tokens that does not fit (see
// Config.ClampMaxTokens).
package openai

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/secret"
)

// DefaultMaxAnswerBytes bounds an answer unless Config does: 16 MiB.
const DefaultMaxAnswerBytes = 16 << 20

// Config sets up a Client.
type Config struct {
	// BaseURL is the server's API, as for OpenAI's own clients. Example:
	// "http://127.0.0.1:8000/v1". Without a path, /v1 is added. A user and
	// password in it are sent as basic authentication if Key is empty.
	BaseURL string
	// Key is sent as a bearer token, unless it is empty.
	Key secret.Value
	// MaxInFlight is how many requests the caller makes at once. That many idle
	// connections are kept. 0 means 64.
	MaxInFlight int
	// MaxAnswerBytes bounds an answer. 0 means DefaultMaxAnswerBytes.
	MaxAnswerBytes int64
	// Header and Query are added to all requests. Values of the header may be secret.
	Header map[string]secret.Value
	Query  url.Values
	// ClampMaxTokens repeats a request with the max_tokens that fit, if the server
	// refuses it only because the prompt and max_tokens together exceed the
	// model's context.
	ClampMaxTokens bool
	// Ready says how to find out whether the server is ready: "" by hints, ReadyNone not
	// at all, or a path from its root. See Client.Ready.
	Ready string
	// Logger gets what the server can't do; may be nil.
	Logger *slog.Logger
	// HTTPClient replaces the package's own client, for tests. Answers use only
	// its transport.
	HTTPClient *http.Client
}

// Client is an engine.Engine. It is safe for concurrent use.
type Client struct {
	logger *slog.Logger
	base   *url.URL // without user and password
	query  url.Values
	http   *http.Client
	// transport is http's. Requests for answers use it directly: they need neither
	// redirects nor cookies.
	transport http.RoundTripper
	chat      target
	comp      target
	// Only functions hold the key, so that it does not appear when a Client is
	// printed, in any struct.
	header  func(context.Context) http.Header // a request's header, not to be changed
	conceal func(message string) string       // replaces the key

	maxAnswer int64
	clamp     bool

	completes atomic.Bool  // the server has answered a completion
	fellBack  atomic.Int32 // answers by chat in place of completions, until one was completed
	estimates atomic.Bool  // the server does not count tokens, and the log says so
	readyPath string
	listed    atomic.Pointer[[]string] // the models that Ready saw
	roots     atomic.Pointer[map[string]string]
	llamacpp  atomic.Bool // the list of models is of llama.cpp
	signs     workSigns
	memory    sync.Pool // *call
	calls     calls
}

// target is one URL of the server, and its name for errors.
type target struct {
	url *url.URL
	op  string
}

// New returns a client. It checks the config and opens no connection.
func New(cfg Config) (*Client, error) {
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = 64
	}
	if cfg.MaxAnswerBytes <= 0 {
		cfg.MaxAnswerBytes = DefaultMaxAnswerBytes
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	key := strings.TrimSpace(cfg.Key.Reveal()) // files and variables often end in a newline
	if strings.ContainsFunc(key, unicode.IsControl) {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "inference server's key",
			Err: errors.New("it contains control characters"), Remedy: "set the key alone, in one line"}
	}
	cfg.Key = secret.NewValue(key)
	base, user, err := parseBase(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{logger: cfg.Logger, base: base, http: newHTTP(cfg), header: headers(cfg, user), query: cfg.Query,
		conceal: concealer(cfg), maxAnswer: cfg.MaxAnswerBytes, clamp: cfg.ClampMaxTokens, readyPath: cfg.Ready}
	if c.transport = c.http.Transport; c.transport == nil {
		c.transport = http.DefaultTransport
	}
	c.chat, c.comp = c.target("POST", "chat/completions"), c.target("POST", "completions")
	c.memory.New = func() any { return newCall(cfg.MaxAnswerBytes, c.conceal) }
	return c, nil
}

// parseBase splits a base URL into the part that may be shown, and the user and
// password.
func parseBase(raw string) (*url.URL, *url.Userinfo, error) {
	const remedy = `give a URL such as "http://127.0.0.1:8000/v1"`
	bad := func(why string) error {
		return &fault.Error{Kind: fault.Invalid, Op: "inference server's base URL", Err: errors.New(why), Remedy: remedy}
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil: // the parser's error repeats the URL with the password
		return nil, nil, bad("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, nil, bad("it does not start with http:// or https://")
	case u.Host == "" || u.Opaque != "":
		return nil, nil, bad("it names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, nil, bad("it has a query or a fragment")
	}
	user := u.User
	u.User = nil
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	if u.Path == "" {
		u.Path = "/v1"
	}
	return u, user, nil
}

// target returns a path below the API.
func (c *Client) target(method, path string) target { return c.at(method, c.base.JoinPath(path)) }

// at returns the target of a URL without a query.
func (c *Client) at(method string, u *url.URL) target {
	t := target{url: u, op: method + " " + u.String()}
	if len(c.query) > 0 {
		with := *u
		with.RawQuery = c.query.Encode()
		t.url = &with
	}
	return t
}

// headers returns the function that returns a request's header, which all requests
// share and must not change. A traced request gets its own, with the name of its
// span for the server.
func headers(cfg Config, user *url.Userinfo) func(context.Context) http.Header {
	h := http.Header{"Content-Type": {"application/json"},
		"Accept": {"text/event-stream, application/json"}, "User-Agent": {"rollout"}}
	if text := cfg.Key.Reveal(); text != "" {
		h.Set("Authorization", "Bearer "+text)
	} else if user != nil {
		password, _ := user.Password()
		(&http.Request{Header: h}).SetBasicAuth(user.Username(), password)
	}
	for name, value := range cfg.Header {
		h.Set(name, strings.TrimSpace(value.Reveal()))
	}
	return func(ctx context.Context) http.Header {
		if !observe.IsRecording(ctx) {
			return h
		}
		h := h.Clone()
		h.Set("Traceparent", observe.Traceparent(ctx))
		return h
	}
}

// concealer returns a function that replaces the key, and the values of headers, in a
// text.
func concealer(cfg Config) func(string) string {
	var pairs []string
	for _, v := range append(slices.Collect(maps.Values(cfg.Header)), cfg.Key) {
		if text := strings.TrimSpace(v.Reveal()); len(text) >= minConcealed || text != "" && text == cfg.Key.Reveal() {
			pairs = append(pairs, text, v.String())
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

// minConcealed is the least length of a header's value that is concealed: shorter ones
// are part of usual words.
const minConcealed = 8

// Close ends answers in flight with Unavailable, and closes all connections.
// Further calls are allowed.
func (c *Client) Close() error {
	c.calls.close()
	c.http.CloseIdleConnections()
	return nil
}

// Break ends the answers in flight with Unavailable, and closes idle connections.
func (c *Client) Break() {
	c.calls.end()
	c.http.CloseIdleConnections()
}

// Listens reports whether the server takes new connections. It opens one and asks
// nothing. Behind a proxy or a client of the caller's it reports true.
func (c *Client) Listens(ctx context.Context) bool {
	own, ok := c.transport.(*http.Transport)
	if !ok || own.DialContext == nil {
		return true
	}
	if own.Proxy != nil {
		if p, err := own.Proxy(&http.Request{URL: c.base}); p != nil || err != nil {
			return true
		}
	}
	port := c.base.Port()
	if port == "" {
		port = c.base.Scheme
	}
	conn, err := own.DialContext(ctx, "tcp", net.JoinHostPort(c.base.Hostname(), port))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// calls is the set of answers in flight, so that Close can end them.
type calls struct {
	mu     sync.Mutex
	closed bool
	live   map[any]context.CancelFunc // by their *call or *rawBody
}

// add registers a call. It returns false after close.
func (s *calls) add(k any, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.live == nil {
		s.live = map[any]context.CancelFunc{}
	}
	s.live[k] = cancel
	return true
}

func (s *calls) remove(k any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, k)
}

func (s *calls) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
}

// end ends the calls that are live.
func (s *calls) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.live {
		cancel()
	}
}

func (s *calls) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
