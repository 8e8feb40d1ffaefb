package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"rollout/shared/fault"
	"rollout/shared/text"
)

// maxModels bounds the bytes of a reply. Hosted APIs list hundreds of models.
const maxModels = 4 << 20

// Ready asks /health, if the server has it, then /models, and returns the first
// model's name; "" from a server without /models. A 401 or 403 is Denied, any other
// status but 200 is Unavailable.
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
	if _, err := c.get(ctx, c.root("health")); err != nil && !errors.Is(err, errNoRoute) {
		return "", err
	}
	t := c.target("GET", "models")
	body, err := c.get(ctx, t)
	if errors.Is(err, errNoRoute) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID lenient `json:"id"`
		} `json:"data"`
	}
	if err := unmarshal(body, &list); err != nil {
		return "", fault.WithKind(fault.Unavailable, errMalformed, "%s", t.op)
	}
	if len(list.Data) == 0 || list.Data[0].ID == "" {
		return "", fault.WithKind(fault.Unavailable, errors.New("the server lists no model"), "%s", t.op)
	}
	return text.Truncate(string(list.Data[0].ID), 1024, ""), nil
}

// get returns the body of a 200. It returns errNoRoute if the path does not exist.
func (c *Client) get(ctx context.Context, t target) ([]byte, error) {
	header := c.header(ctx).Clone()
	header.Set("Accept", "application/json")
	req := (&http.Request{Method: http.MethodGet, URL: t.url, Host: t.url.Host, Header: header,
		ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, noAnswer(t, err, !isDial(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "%s", t.op)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil, errNoRoute
	}
	kind := fault.Unavailable
	if kindOf(resp.StatusCode) == fault.Denied {
		kind = fault.Denied
	}
	s := parseServerError(body)
	err = fmt.Errorf("status %d: %s", resp.StatusCode, c.presentable(s.message))
	return nil, fault.WithKind(kind, err, "%s", t.op)
}
