package openai

import (
	"net"
	"net/http"
	"net/url"
	"time"

	"rollout/gpuworker/engine/internal/plainhttp"
)

const (
	dialTimeout = 10 * time.Second
	maxHeader   = 64 << 10 // bytes of a response's
)

// idleTimeout is shorter than the 5 s after which uvicorn, which serves vLLM
// and most of its kin, closes an idle connection: a request that meets such a
// close could not be told from a server's death.
const idleTimeout = 4 * time.Second

// newHTTP returns the client that requests are made with.
//
// A request waits neither for a place in a pool (connections are not limited;
// the caller limits requests) nor for headers (its context says how long), so
// that all its time is the server's. A proxy of the environment is used, but
// never for loopback addresses.
func newHTTP(cfg Config, base *url.URL) *http.Client {
	own := http.Client{}
	if cfg.HTTPClient != nil {
		own = *cfg.HTTPClient
	} else {
		own.Transport = newTransport(cfg, base)
	}
	// A redirected POST would lose its body or take the key elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// newTransport returns plainhttp's transport, which costs less than net/http's, for
// a server that no proxy stands before.
func newTransport(cfg Config, base *url.URL) http.RoundTripper {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one stream a connection: no head-of-line blocking
	dial := (&net.Dialer{Timeout: dialTimeout}).DialContext
	idle := cfg.MaxInFlight + 1 // and one for Ready
	general := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           0,
		MaxIdleConnsPerHost:    idle,
		MaxConnsPerHost:        0,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // a small answer may not unpack to a big one
		WriteBufferSize:        8 << 10,
		ReadBufferSize:         8 << 10,
		Protocols:              &protocols,
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: base}); proxy != nil || err != nil {
		return general
	}
	return plainhttp.New(plainhttp.Config{Server: base, MaxIdle: idle, IdleTimeout: idleTimeout, MaxHeader: maxHeader, Dial: dial, Other: general})
}
