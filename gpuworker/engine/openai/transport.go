package openai

import (
	"net"
	"net/http"
	"time"
)

// idleTimeout is shorter than the 5 s after which uvicorn, which serves vLLM and
// similar servers, closes an idle connection. A request that meets such a close
// looks like a crash of the server.
const idleTimeout = 4 * time.Second

// newHTTP returns the HTTP client.
//
// It limits neither connections (the caller limits requests) nor the wait for
// headers (the request's context does), so that all the time of a request is the
// server's. It uses the environment's proxy, but not for loopback addresses.
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
			MaxIdleConnsPerHost:    cfg.MaxInFlight + 1, // the additional one is for Ready
			MaxConnsPerHost:        0,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // a small answer must not unpack to a large one
			WriteBufferSize:        8 << 10,
			ReadBufferSize:         8 << 10,
			Protocols:              &protocols,
		}
	}
	// A redirected POST would lose its body or send the key elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
