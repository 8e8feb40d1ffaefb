package openai

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"unicode"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
	"rollout/shared/fault"
	"rollout/shared/retry"
	"rollout/shared/text"
)

const (
	maxErrorBody = 64 << 10
	maxMessage   = 400 // bytes of a server's message in an error
)

// errMalformed means that an answer is not JSON, or not of the right shape.
var errMalformed = errors.New("the answer is malformed")

// errNoRoute means a 404 or 405 for the path itself, not for a model.
var errNoRoute = errors.New("the server has no such endpoint")

// errOnlyChats is an errNoRoute that is about the model: it answers no completions.
var errOnlyChats = fmt.Errorf("%w for this model", errNoRoute)

// refused returns the fault of a request that can't be sent or that the server
// refuses.
func refused(op, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: op, Err: fmt.Errorf(format, args...)}
}

// asMalformed turns an error of rawjson into errMalformed. It does not repeat the
// data, which is the model's text.
func asMalformed(err error, data []byte) error {
	if errors.Is(err, rawjson.ErrTruncated) || errors.Is(err, rawjson.ErrMalformed) {
		return fmt.Errorf("%w: in a piece of %d bytes, %w", errMalformed, len(data), err)
	}
	return err
}

// answerFault classifies an error after a 200.
func answerFault(t target, err error) error {
	switch {
	case errors.Is(err, errMalformed), errors.Is(err, errOversized), errors.Is(err, errNoChoice):
	case errors.Is(err, errFinish), errors.Is(err, engine.ErrWhitespace):
	default: // the connection broke, or the answer may be cut
		return noAnswer(t, err, true)
	}
	return &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Op: t.op, Err: err}
}

// noAnswer returns the fault of a connection that could not be made, or broke.
// Received says that the server may have the request.
func noAnswer(t target, err error, received bool) error {
	return fault.WithKind(fault.Unavailable, &engine.ServerError{Received: received, Err: withoutURL(err)}, "%s", t.op)
}

// isDial reports whether no connection could be made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// statusFault classifies a response whose status is not 200.
func (c *Client) statusFault(t target, resp *http.Response) error {
	var body []byte
	in, err := unpacked(resp)
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(in, maxErrorBody))
	}
	if err != nil && len(body) == 0 && resp.Request.Context().Err() != nil {
		return err
	}
	noRoute := resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed
	s := parseServerError(body)
	switch {
	case t.op == c.comp.op && s.onlyChats(resp.StatusCode):
		err = errOnlyChats
	case noRoute && !s.aboutModel():
		err = errNoRoute
	default:
		return c.bodyFault(t, resp.StatusCode, body, resp.Header)
	}
	return refused(t.op, "%w", &engine.StatusError{Status: resp.StatusCode,
		Err: fmt.Errorf("%w: status %d: %s", err, resp.StatusCode, c.presentable(s.message))})
}

// bodyFault classifies an error by its status and body. A status in the body
// overrides the response's, which gateways rewrite and streams do not have. A
// response's status that concerns every request is not overridden.
func (c *Client) bodyFault(t target, status int, body []byte, header http.Header) error {
	s := parseServerError(body)
	if kindOf(status) == fault.Invalid || kindOf(status) == fault.Corrupt {
		if s.status != 0 {
			status = s.status
		}
	}
	e := &fault.Error{Kind: kindOf(status), Op: t.op}
	switch {
	case s.tooLong(status) && (e.Kind == fault.Invalid || e.Kind == fault.Corrupt):
		e.Kind, e.Class = fault.Invalid, fault.TooLong
	case s.forbidden():
		e.Kind, e.Class = fault.Invalid, fault.Refused
	case status == http.StatusRequestEntityTooLarge:
		e.Class = fault.TooLong
	case s.noModel(status): // all requests of the run name the same model
		e.Kind, e.Remedy = fault.Denied, "correct model.uri, or let the server serve that model"
	case e.Kind == fault.Invalid:
		e.Class, e.Remedy = fault.Refused, s.remedy()
	case e.Kind == fault.Corrupt:
		e.Class = fault.Engine
	case status == http.StatusUnauthorized: // a 403 may be about one prompt
		e.Remedy = "check the inference server's key"
	case e.Kind == fault.Throttled:
		e.RetryAfter = retry.After(header)
	}
	if 300 <= status && status < 400 {
		e.Remedy = "the server redirects: give the URL it redirects to as the base URL"
	}
	said := &engine.StatusError{Status: status, Param: s.param, Named: s.forbidden() || s.tooLong(status),
		Quota:     oneOf(quotaCodes, s.code) || oneOf(quotaCodes, s.kind),
		RateLimit: rateLimitOf(header),
		Err:       fmt.Errorf("status %d: %s", status, c.presentable(s.message))}
	if status == http.StatusTooManyRequests && !said.Quota {
		said.RateLimit = refusalOf(header, s)
		e.RetryAfter = said.RateLimit.Wait
	}
	e.Err = said
	if e.Kind == fault.Corrupt && status >= 500 {
		e.Err = &engine.ServerError{Received: true, Err: e.Err}
	}
	if e.Class == fault.TooLong {
		if o, ok := readOverflow(s.message); ok {
			o.err, e.Err = e.Err, &o
		}
	}
	return e
}

// kindOf returns the kind of fault that a status means.
func kindOf(status int) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return fault.Denied
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return fault.Throttled
	case http.StatusFailedDependency: // TGI's generation failed
		return fault.Corrupt
	}
	if 400 <= status && status < 500 {
		return fault.Invalid
	}
	return fault.Corrupt
}

// presentable makes a server's message one short line without the key, which some
// servers repeat.
func (c *Client) presentable(message string) string {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(c.conceal(message), "\uFFFD"))
	if message = strings.TrimSpace(text.Truncate(message, maxMessage, "…")); message == "" {
		return "no message"
	}
	return message
}
