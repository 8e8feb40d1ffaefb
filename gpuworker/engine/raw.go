package engine

import (
	"context"
	"io"
	"net/http"

	"rollout/shared/core/ratelimit"
)

// RawRequest is a request that a server gets as it is, for a client that waits for the
// answer.
type RawRequest struct {
	Path string // below the server's API. Example: "chat/completions"
	Body []byte // a JSON object; not read after the answer's Body is closed
	// Avoid names servers that get the request only if no other server can.
	Avoid []string
}

// RawAnswer is what a server answers to a RawRequest.
type RawAnswer struct {
	Status int
	Header http.Header
	// Body is the answer as it arrives. The caller closes it, which ends the request. A
	// Read fails with Unavailable if the connection broke, and with Canceled if the
	// request's context ended.
	Body      io.ReadCloser
	Server    string           // which one answered, of an engine with several
	RateLimit ratelimit.Report // what the server says about its limits with the answer
}

// Passer is an Engine of HTTP servers that can pass requests on as they are.
type Passer interface {
	// Pass returns the server's answer when its headers have arrived, whatever its status
	// is. Faults are Unavailable, Throttled or Canceled as those of Engine.Answer. With
	// CrashError in the chain the server may have died of the request, which must not be
	// repeated; other requests that failed with Unavailable may be.
	Pass(ctx context.Context, r RawRequest) (RawAnswer, error)
}
