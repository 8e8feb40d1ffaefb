package openai

import (
	"net"
	"net/http"
	"time"
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
func newHTTP(cfg Config) *http.Client {
	own := http.Client{}
	if cfg.HTTPClient != nil {
		own = *cfg.HTTPClient
	} else {
		var protocols http.Protocols
		protocols.SetHTTP1(true) // one stream a connection: no head-of-line blocking
		own.Transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConns:           0,
			MaxIdleConnsPerHost:    cfg.MaxInFlight + 1, // and one for Ready
			MaxConnsPerHost:        0,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // a small answer may not unpack to a big one
			WriteBufferSize:        8 << 10,
			ReadBufferSize:         8 << 10,
			Protocols:              &protocols,
		}
	}
	// A redirected POST would lose its body or take the key elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
