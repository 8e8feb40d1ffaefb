package openai

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"rollout/gpuworker/engine/internal/rawjson"
)

// overflow is in the chain of a too_long fault with numbers: the prompt and
// max_tokens together do not fit the model's context. All numbers are tokens.
type overflow struct {
	limit, prompt int64
	// atLeast says that the prompt may be longer: the server stopped counting it
	// when it was sure to refuse the request.
	atLeast bool
	err     error
}

func (o *overflow) Error() string { return o.err.Error() }
func (o *overflow) Unwrap() error { return o.err }

// How servers write the numbers, in lower case.
var (
	limitPattern = regexp.MustCompile("(?:maximum context length (?:is|of)|context length is only|" +
		"`max_new_tokens` must be <=) (\\d{1,12})")
	promptPatterns = []*regexp.Regexp{
		regexp.MustCompile(`your request has (\d{1,12}) input tokens`), // vLLM
		// OpenAI, older vLLM, llama-cpp-python
		regexp.MustCompile(`\((\d{1,12}) in (?:the messages|the prompt|your prompt)[,;]`),
		regexp.MustCompile("given: (\\d{1,12}) `inputs` tokens"), // TGI
	}
	// Newer vLLM stops counting a prompt that can't fit.
	atLeastPattern = regexp.MustCompile(`prompt contains (at least )?(\d{1,12}) input tokens`)
	// It says so or, in other releases, names the token at which it stopped.
	stoppedPattern = regexp.MustCompile(`you passed (\d{1,12}) input tokens and requested`)
	// SGLang also refuses requests that just fit.
	sglangPattern = regexp.MustCompile(`(\d{1,12}) tokens from the input messages`)
)

// readOverflow finds the numbers in a server's message.
func readOverflow(message string) (o overflow, ok bool) {
	message = string(bytes.ToLower([]byte(message)))
	o.limit, ok = firstNumber(limitPattern, message)
	if !ok {
		return o, false
	}
	for _, pattern := range promptPatterns {
		if o.prompt, ok = firstNumber(pattern, message); ok {
			return o, true
		}
	}
	if o.prompt, ok = firstNumber(sglangPattern, message); ok {
		o.limit--
		return o, true
	}
	if o.prompt, ok = firstNumber(stoppedPattern, message); ok {
		o.atLeast = true
		return o, true
	}
	m := atLeastPattern.FindStringSubmatch(message)
	if m == nil {
		return o, false
	}
	o.prompt, _ = strconv.ParseInt(m[2], 10, 64)
	o.atLeast = m[1] != ""
	return o, true
}

func firstNumber(pattern *regexp.Regexp, message string) (int64, bool) {
	m := pattern.FindStringSubmatch(message)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n, err == nil
}

// countTokens asks vLLM's /tokenize how many tokens the prompt has, and what the
// limit is. It returns false if the server does not say.
func (c *Client) countTokens(ctx context.Context, body []byte, o *overflow) bool {
	t := c.root("tokenize")
	req := (&http.Request{Method: http.MethodPost, URL: t.url, Host: t.url.Host, Header: c.header(ctx),
		ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(bytes.Clone(body))), ContentLength: int64(len(body))}).WithContext(ctx)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswer))
	if err != nil || resp.StatusCode != http.StatusOK {
		return false
	}
	var reply struct {
		Count int64 `json:"count"`
		Limit int64 `json:"max_model_len"`
	}
	if unmarshal(answer, &reply) != nil || reply.Count <= 0 {
		return false
	}
	o.prompt = reply.Count
	if reply.Limit > 0 {
		o.limit = reply.Limit
	}
	return true
}

// lowerMaxTokens returns the body with max_tokens lowered to n, or set to n if the
// body has none. It returns false if n leaves no room for an answer, or if the body
// asks for n or less: then the server's numbers are about something else.
func lowerMaxTokens(body []byte, n int64) ([]byte, bool) {
	if n < 1 {
		return nil, false
	}
	number := strconv.AppendInt(nil, n, 10)
	out, present, lowered := []byte{'{'}, false, false
	err := rawjson.Members(body, func(name, v []byte) error {
		if string(name) == "max_tokens" || string(name) == "max_completion_tokens" {
			if asked, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				present = true
				if asked > n {
					v, lowered = number, true
				}
			}
		}
		out = append(append(append(append(out, '"'), name...), '"', ':'), v...)
		out = append(out, ',')
		return nil
	})
	if err != nil || present && !lowered {
		return nil, false
	}
	if !present {
		out = append(append(append(out, `"max_tokens":`...), number...), ',')
	}
	out[len(out)-1] = '}'
	return out, true
}
