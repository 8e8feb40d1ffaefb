package grading

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/retry"
)

// Bounds of a service's response. A number beyond maxScore does not count as a score.
const (
	maxResponse        = 64 << 10 // bytes
	maxResponsePerItem = 1 << 10  // bytes, in addition
	maxScore           = 1e15
)

// request is what a service gets, and response what it returns: one score for
// each item, in their order.
type (
	request struct {
		Items []item `json:"items"`
	}
	item struct {
		ID       string          `json:"id"`
		Prompt   json.RawMessage `json:"prompt,omitempty"`   // a string
		Messages json.RawMessage `json:"messages,omitempty"` // an array
		Answer   string          `json:"answer"`
		Expected json.RawMessage `json:"expected,omitempty"`
	}
	response struct {
		Scores []json.RawMessage `json:"scores"` // a number, or null without a score
	}
)

// failure is why a request gave no scores.
type failure struct {
	cause      grade.Cause
	err        error // Unavailable if the same request may succeed later
	perhapsOne bool  // one of the answers may be the reason
}

// maxRetryAfter bounds the wait that a service asks for.
const maxRetryAfter = time.Minute

// newClient returns the HTTP client of a service.
func newClient(given *http.Client, concurrency int) *http.Client {
	own := http.Client{}
	if given != nil {
		own = *given
	} else {
		own.Transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConnsPerHost:    concurrency,
			IdleConnTimeout:        4 * time.Second, // less than the 5 s after which many servers close a connection
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true, // a small response must not unpack to a large one
		}
	}
	// A redirected request would send the key and the answers elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// askHTTP makes one request for the scores of the cases.
func (s *service) askHTTP(ctx context.Context, cases []grade.Case) ([]grade.Score, *failure) {
	body, err := encode(cases)
	if err != nil {
		return nil, &failure{cause: grade.Refused, perhapsOne: true,
			err: fault.WithKind(fault.Invalid, err, "encode the answers")}
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout.Std())
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodPost, s.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, &failure{cause: grade.Refused, err: fault.WithKind(fault.Invalid, err, "address the service")}
	}
	req.Header.Set("Content-Type", "application/json")
	if key := s.key.Reveal(); key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, s.unreached(limited, err)
	}
	defer resp.Body.Close()
	limit := int64(maxResponse + maxResponsePerItem*len(cases))
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, s.unreached(limited, err)
	case resp.StatusCode/100 != 2:
		return nil, refusal(resp, s.conceal(b))
	case int64(len(b)) > limit:
		return nil, malformed("a response of more than %d bytes", limit)
	}
	return decode(b, len(cases))
}

// conceal replaces the key, which services repeat at times, in a response. It does so
// before the text is shortened or quoted, which would leave parts of the key.
func (s *service) conceal(body []byte) []byte {
	if s.key.Reveal() == "" {
		return body
	}
	return bytes.ReplaceAll(body, []byte(s.key.Reveal()), []byte(s.key.String()))
}

// unreached is the failure of a request that ended without a response.
func (s *service) unreached(ctx context.Context, err error) *failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &failure{cause: grade.TimedOut,
			err: fault.New(fault.Unavailable, "no response within %s", s.cfg.Timeout.Std())}
	}
	return &failure{cause: grade.Unavailable, err: &fault.Error{Kind: fault.Unavailable, Err: err}}
}

// refusal is the failure of a request with another status than 2xx.
func refusal(resp *http.Response, body []byte) *failure {
	err := fault.New(fault.Invalid, "status %s: %.200q", resp.Status, body)
	switch code := resp.StatusCode; {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		return &failure{cause: grade.Unavailable, perhapsOne: code == http.StatusInternalServerError, err: &fault.Error{
			Kind: fault.Unavailable, RetryAfter: min(retry.After(resp.Header), maxRetryAfter), Err: err}}
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound, code/100 == 3:
		return &failure{cause: grade.Refused, err: err}
	}
	return &failure{cause: grade.Refused, err: err, perhapsOne: true}
}

func malformed(format string, args ...any) *failure {
	return &failure{cause: grade.Malformed, err: fault.New(fault.Unavailable, format, args...), perhapsOne: true}
}

func encode(cases []grade.Case) ([]byte, error) {
	r := request{Items: make([]item, len(cases))}
	for i, c := range cases {
		r.Items[i] = item{ID: c.ID, Answer: c.Answer, Expected: c.Expected}
		if len(c.Prompt) > 0 && c.Prompt[0] == '"' {
			r.Items[i].Prompt = c.Prompt
		} else {
			r.Items[i].Messages = c.Prompt
		}
	}
	return json.Marshal(r)
}

// decode reads the scores of a response. A response that is wrong anywhere gives
// none: its numbers can't be assigned to answers.
func decode(b []byte, n int) ([]grade.Score, *failure) {
	var r response
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, malformed("the response is not JSON with scores: %w", err)
	}
	if len(r.Scores) != n {
		return nil, malformed("the response has %d scores for %d answers", len(r.Scores), n)
	}
	out := make([]grade.Score, n)
	for i, raw := range r.Scores {
		if string(raw) == "null" {
			out[i] = grade.Missing(grade.Declined)
			continue
		}
		if err := json.Unmarshal(raw, &out[i].Value); err != nil || math.Abs(out[i].Value) > maxScore {
			return nil, malformed("score %d is %.40s, not a number between -1e15 and 1e15", i, raw)
		}
	}
	return out, nil
}
