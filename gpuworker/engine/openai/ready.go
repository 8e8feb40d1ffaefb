package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"rollout/shared/fault"
	"rollout/shared/text"
)

const (
	// maxModels bounds the bytes of a reply. Hosted APIs list hundreds of models.
	maxModels = 4 << 20
	// hintTime is the longest wait for a hint. LiteLLM's /health asks every model.
	hintTime = 5 * time.Second
)

// ReadyNone is the Config.Ready of a server that is not asked whether it is ready.
const ReadyNone = "none"

// Ready returns once whether the server can answer, and the first model that it lists;
// "" if it lists none.
//
//	GET /models ─▶ GET /health ─▶ ready
//	    └─ 401, 403, 429, 5xx ─┴─▶ POST /chat/completions ─▶ ready, Denied or Unavailable
//
// The first two are hints: a status that says neither yes nor no, and a reply of another
// shape, is ignored. A hint that says no is checked by a question, because gateways
// answer these paths in their own ways. Only the question decides: 401, 402 and 403 are
// Denied; 424, 429, 5xx and an error in place of an answer are Unavailable; and any other
// answer, a refusal too, is one. A server that can't be reached is Unavailable at once.
//
// With Config.Ready as a path, that path decides instead: 2xx is ready. With ReadyNone,
// every server is.
func (c *Client) Ready(ctx context.Context) (string, error) {
	model, err := c.ready(ctx)
	if err != nil && ctx.Err() != nil {
		return "", fault.WithKind(fault.Canceled, context.Cause(ctx), "GET %s", c.base)
	}
	return model, err
}

func (c *Client) ready(ctx context.Context) (string, error) {
	if c.calls.isClosed() {
		return "", c.closedFault()
	}
	switch c.readyPath {
	case "":
		return c.readyByHints(ctx)
	case ReadyNone:
		return "", nil
	}
	r, err := c.get(ctx, c.fromRoot(c.readyPath))
	if err != nil {
		return "", err
	}
	if r.status < 200 || r.status > 299 {
		return "", c.statusError(r, fault.Unavailable)
	}
	listed, _, _ := c.hint(ctx, c.target("GET", "models"))
	return c.firstModel(listed), nil
}

// readyByHints is Ready without a path of its own.
func (c *Client) readyByHints(ctx context.Context) (string, error) {
	listed, doubt, err := c.hint(ctx, c.target("GET", "models"))
	if err != nil {
		return "", err
	}
	model := c.firstModel(listed)
	if !doubt && !listed.isHosted() {
		if _, doubt, err = c.hint(ctx, c.root("health")); err != nil {
			return "", err
		}
	}
	if doubt {
		err = c.question(ctx)
	}
	return model, err
}

// reply is a response whose body was read.
type reply struct {
	op     string
	status int
	body   []byte
}

// hint asks a path that servers have or have not. doubt says that the reply says no. A
// reply that does not come in time says nothing. An error says that the server can't be
// reached.
func (c *Client) hint(ctx context.Context, t target) (r reply, doubt bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	r, err = c.get(ctx, t)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return reply{}, false, nil
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return r, true, err
	}
	return r, r.status >= 500 && r.status != http.StatusNotImplemented, err
}

// question asks for one token of the model "". The server's refusal is an answer, too.
func (c *Client) question(ctx context.Context) error {
	const body = `{"model":"","messages":[{"role":"user","content":"hi"}],"max_tokens":1,"temperature":0}`
	r, err := c.do(ctx, c.chat, http.MethodPost, body)
	switch {
	case err != nil:
		return err
	case kindOf(r.status) == fault.Denied:
		err := c.statusError(r, fault.Denied)
		return &fault.Error{Kind: fault.Denied, Err: err, Remedy: "check the inference server's key"}
	case r.status == http.StatusTooManyRequests, r.status == http.StatusFailedDependency, r.status >= 500:
		return c.statusError(r, fault.Unavailable)
	case r.status == http.StatusOK && isError(r.body): // of a server whose engine has died
		return c.statusError(r, fault.Unavailable)
	}
	return nil
}

// isError reports whether a body is an error in place of an answer.
func isError(body []byte) bool {
	var shape struct {
		Object  lenient `json:"object"`
		Choices []any   `json:"choices"`
		Error   any     `json:"error"`
	}
	return unmarshal(body, &shape) == nil && shape.Choices == nil && (shape.Error != nil || shape.Object == "error")
}

func (c *Client) statusError(r reply, kind fault.Kind) error {
	s := parseServerError(r.body)
	return fault.WithKind(kind, fmt.Errorf("status %d: %s", r.status, c.presentable(s.message)), "%s", r.op)
}

// modelList is OpenAI's list of models.
type modelList struct {
	Data []struct {
		ID      lenient `json:"id"`
		OwnedBy lenient `json:"owned_by"`
		Root    lenient `json:"root"` // of vLLM: what is behind the name
	} `json:"data"`
}

// models returns the list of a reply; an empty one of other replies.
func (r reply) models() (list modelList) {
	if r.status != http.StatusOK || unmarshal(r.body, &list) != nil {
		return modelList{}
	}
	return list
}

// names returns the names that are listed.
func (l modelList) names() (names []string) {
	for _, m := range l.Data {
		if m.ID != "" {
			names = append(names, text.Truncate(string(m.ID), 1024, ""))
		}
	}
	return names
}

// owner returns who owns the first model.
func (l modelList) owner() string {
	if len(l.Data) == 0 {
		return ""
	}
	return string(l.Data[0].OwnedBy)
}

// isHosted reports whether a list is of OpenAI, or of LiteLLM, whose /health asks every
// model for money.
func (r reply) isHosted() bool {
	owner := r.models().owner()
	return owner == "openai" || owner == "system"
}

// firstModel returns the first model of a list, and keeps the list for Models and IsAlias.
func (c *Client) firstModel(r reply) string {
	list := r.models()
	names, roots := list.names(), rootsOf(list)
	if len(names) == 0 {
		return ""
	}
	c.roots.Store(&roots)
	c.llamacpp.Store(list.owner() == "llamacpp")
	if !c.llamacpp.Load() { // it answers to any name
		c.listed.Store(&names)
	}
	return names[0]
}

// Models returns the models that the server listed when Ready asked last; nil if it has
// listed none, or answers to any name.
func (c *Client) Models() []string {
	if names := c.listed.Load(); names != nil {
		return slices.Clone(*names)
	}
	return nil
}

// IsAlias reports whether the server listed both names for the same model when Ready asked
// last.
func (c *Client) IsAlias(x, y string) bool {
	roots := c.roots.Load()
	if roots == nil {
		return false
	}
	root := (*roots)[x]
	return root != "" && (root == y || root == (*roots)[y])
}

// rootsOf returns what is behind each name of the list.
func rootsOf(list modelList) map[string]string {
	roots := map[string]string{}
	for _, m := range list.Data {
		roots[string(m.ID)] = string(m.Root)
	}
	return roots
}

// get requests a path, and returns a reply of any status. A server that can't be
// reached is Unavailable.
func (c *Client) get(ctx context.Context, t target) (reply, error) {
	return c.do(ctx, t, http.MethodGet, "")
}

func (c *Client) do(ctx context.Context, t target, method, body string) (reply, error) {
	header := c.header(ctx).Clone()
	header.Set("Accept", "application/json")
	req := (&http.Request{Method: method, URL: t.url, Host: t.url.Host, Header: header,
		ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return reply{}, noAnswer(t, err, !isDial(err))
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return reply{}, fault.WithKind(fault.Unavailable, err, "%s", t.op)
	}
	return reply{t.op, resp.StatusCode, bytes.TrimSpace(read)}, nil
}
