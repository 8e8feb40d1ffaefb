package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// overflow is in the chain of a too_long fault whose numbers the server told:
// the prompt would fit the model's context, but not with max_tokens.
type overflow struct {
	limit, prompt int64
	// atLeast says that the server stopped counting the prompt where it was
	// sure of the answer.
	atLeast bool
	err     error
}

func (o *overflow) Error() string { return o.err.Error() }
func (o *overflow) Unwrap() error { return o.err }

// How servers tell the numbers, in lower case.
var (
	limitWords  = regexp.MustCompile("(?:maximum context length (?:is|of)|`max_new_tokens` must be <=) (\\d{1,12})")
	promptWords = []*regexp.Regexp{
		regexp.MustCompile(`your request has (\d{1,12}) input tokens`),                    // vLLM
		regexp.MustCompile(`\((\d{1,12}) in (?:the messages|the prompt|your prompt)[,;]`), // OpenAI, older vLLM, llama-cpp-python
		regexp.MustCompile("given: (\\d{1,12}) `inputs` tokens"),                          // TGI
	}
	// Newer vLLM cuts a prompt off where it can't fit any more.
	leastWords = regexp.MustCompile(`prompt contains (at least )?(\d{1,12}) input tokens`)
	// SGLang refuses what just fits, too.
	sglangWords = regexp.MustCompile(`(\d{1,12}) tokens from the input messages`)
)

// readOverflow finds the numbers in a server's message.
func readOverflow(message string) (o overflow, ok bool) {
	message = string(bytes.ToLower([]byte(message)))
	o.limit, ok = firstNumber(limitWords, message)
	if !ok {
		return o, false
	}
	for _, words := range promptWords {
		if o.prompt, ok = firstNumber(words, message); ok {
			return o, true
		}
	}
	if o.prompt, ok = firstNumber(sglangWords, message); ok {
		o.limit--
		return o, true
	}
	m := leastWords.FindStringSubmatch(message)
	if m == nil {
		return o, false
	}
	o.prompt, _ = strconv.ParseInt(m[2], 10, 64)
	o.atLeast = m[1] != ""
	return o, true
}

func firstNumber(words *regexp.Regexp, message string) (int64, bool) {
	m := words.FindStringSubmatch(message)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	return n, err == nil
}

// ask posts a body and, if the client clamps and the server says that
// max_tokens alone is too much, once more with what fits.
func (c *Client) ask(ctx context.Context, k *call, t target, body []byte) (engine.Answer, error) {
	a, err := c.post(ctx, k, t, body)
	var over *overflow
	if !c.clamp || !errors.As(err, &over) {
		return a, err
	}
	o := *over
	if o.atLeast && !c.count(ctx, body, &o) {
		return a, err
	}
	lowered, ok := lowerMaxTokens(body, o.limit-o.prompt)
	if !ok {
		return a, err
	}
	k.reset()
	a, err = c.post(ctx, k, t, lowered)
	a.MaxTokens = o.limit - o.prompt
	return a, err
}

// count asks vLLM how many tokens the prompt has.
func (c *Client) count(ctx context.Context, body []byte, o *overflow) bool {
	t := c.root("tokenize")
	req := (&http.Request{Method: http.MethodPost, URL: t.url, Host: t.url.Host, Header: c.header(ctx),
		ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(bytes.Clone(body))), ContentLength: int64(len(body))}).WithContext(ctx)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, c.maxAnswer))
	if err != nil || resp.StatusCode != http.StatusOK {
		return false
	}
	var told struct {
		Count int64 `json:"count"`
		Limit int64 `json:"max_model_len"`
	}
	if unmarshal(answer, &told) != nil || told.Count <= 0 {
		return false
	}
	o.prompt = told.Count
	if told.Limit > 0 {
		o.limit = told.Limit
	}
	return true
}

// lowerMaxTokens returns the body with n where it asks for more tokens, or says
// nothing. False if there is no room, or the body asks for no more than that:
// then the server's numbers are about something else.
func lowerMaxTokens(body []byte, n int64) ([]byte, bool) {
	if n < 1 {
		return nil, false
	}
	number := strconv.AppendInt(nil, n, 10)
	out, said, lowered := []byte{'{'}, false, false
	err := rawjson.Members(body, func(name, v []byte) error {
		if string(name) == "max_tokens" || string(name) == "max_completion_tokens" {
			if asked, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				said = true
				if asked > n {
					v, lowered = number, true
				}
			}
		}
		out = append(append(append(append(out, '"'), name...), '"', ':'), v...)
		out = append(out, ',')
		return nil
	})
	if err != nil || said && !lowered {
		return nil, false
	}
	if !said {
		out = append(append(append(out, `"max_tokens":`...), number...), ',')
	}
	out[len(out)-1] = '}'
	return out, true
}
