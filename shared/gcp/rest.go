package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"rollout/shared/fault"
)

// maxAnswer bounds the bytes that are read of one answer.
const maxAnswer = 8 << 20

// rest sends requests to services of which rollout uses a few methods. Their generated
// clients would add megabytes to every program. It is safe for concurrent use.
type rest struct{ client *http.Client }

// newREST returns a client with the configuration's credentials; it sends no request.
func newREST(ctx context.Context, cfg Config, own ...option.ClientOption) (*rest, error) {
	client, _, err := htransport.NewClient(ctx, cfg.httpOptions("", own...)...)
	if err != nil {
		return nil, translate(ctx, err, "open the services' client")
	}
	return &rest{client}, nil
}

// call sends a request with the JSON of in, unless in is nil, and decodes the answer into
// out, unless out is nil. what describes the request in errors. It repeats nothing.
func (c *rest) call(ctx context.Context, method, address string, in, out any, what string) error {
	var body io.Reader = http.NoBody
	if in != nil {
		content, err := json.Marshal(in)
		if err != nil {
			return fault.WithKind(fault.Internal, err, "%s", what)
		}
		body = bytes.NewReader(content)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "%s", what)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return translate(ctx, err, "%s", what)
	}
	defer answer.Body.Close() // opened for reading; closing cannot lose data
	answer.Body = io.NopCloser(io.LimitReader(answer.Body, maxAnswer))
	if err := googleapi.CheckResponse(answer); err != nil {
		return translate(ctx, err, "%s", what)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return translate(ctx, err, "%s", what)
		}
		return fault.WithKind(fault.Unavailable, err, "%s: read the answer", what)
	}
	return nil
}
