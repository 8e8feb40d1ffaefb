package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/tinylm/sampling"
	"rollout/shared/fault"
)

// problem is an error response.
type problem struct {
	status int
	kind   string // vLLM's name of the error type
	param  string // the member of the request that is wrong; "" if the error is not about a member
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

// problemOf returns the error response for an error.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	p = &problem{status: http.StatusInternalServerError, kind: "InternalServerError", err: err}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		p.status, p.kind = http.StatusRequestEntityTooLarge, "BadRequestError"
		p.err = fmt.Errorf("the request has more than %d bytes: send several smaller requests", large.Limit)
	case fault.Is(err, fault.Invalid):
		p.status, p.kind = http.StatusBadRequest, "BadRequestError"
	case fault.Is(err, fault.Throttled):
		p.status, p.kind = http.StatusTooManyRequests, "RateLimitError"
	case fault.Is(err, fault.Unavailable), fault.Is(err, fault.Canceled):
		p.status, p.kind = http.StatusServiceUnavailable, "ServiceUnavailableError"
	}
	var about *sampling.ParamError
	if errors.As(err, &about) {
		p.param = about.Name
	}
	return p
}

// writeFault answers with an error in the format of OpenAI and vLLM.
func writeFault(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if wait := fault.RetryAfter(err); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(wait.Seconds()))))
	}
	write(w, p.status, p.append(nil))
}

func (p *problem) append(out []byte) []byte {
	out = quote(append(out, `{"error":{"message":`...), p.Error())
	out = quote(append(out, `,"type":`...), p.kind)
	if p.param == "" {
		out = append(out, `,"param":null`...)
	} else {
		out = quote(append(out, `,"param":`...), p.param)
	}
	return fmt.Appendf(out, `,"code":%d}}`, p.status)
}

// quote appends a JSON string.
func quote(out []byte, s string) []byte {
	out, _ = jsontext.AppendQuote(out, s) // writes invalid UTF-8 as U+FFFD
	return out
}

// read reads a request's body. A body that is too large is an *http.MaxBytesError.
func read(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	if err != nil && !errors.As(err, &large) {
		return nil, fault.WithKind(fault.Invalid, err, "read the request")
	}
	return body, err
}
