// Package webhook posts CloudEvents to an HTTP address of the deployment's config, signed as
// the Standard Webhooks specification says:
//
//	POST <address>
//	content-type: application/cloudevents+json
//	webhook-id: <the event's id>
//	webhook-timestamp: <seconds since 1970, of this attempt>
//	webhook-signature: v1,<base64 of HMAC-SHA256 over "id.timestamp.body">
//
// A receiver that answers 2xx has the event. The body and the id are the same at every
// attempt. The package retries nothing: its caller decides when to send an event again.
//
// The address comes from the deployer, never from a run, so that it may be a private one. A
// redirect is followed on the same host alone, and only where it repeats the request (307 and
// 308). The address may hold a token in its query, which no message shows.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/retry"
	"rollout/shared/secret"
	"rollout/shared/text"
)

// Names of the headers.
const (
	IDHeader        = "webhook-id"
	TimestampHeader = "webhook-timestamp"
	SignatureHeader = "webhook-signature"
)

const (
	contentType = "application/cloudevents+json"
	// maxAnswer bounds what is read of an answer, and maxSaid what of it goes into an error.
	maxAnswer = 4 << 10
	maxSaid   = 200
	// maxRedirects bounds the redirects of one request.
	maxRedirects = 3
)

// Options describe a webhook.
type Options struct {
	Address string
	// Secret reads the key of the signatures. It is asked for each event.
	Secret  func(context.Context) (secret.Value, error)
	Timeout time.Duration // of one attempt, the answer included
	Clock   clock.Clock
}

// Webhook posts events to one address. It is safe for concurrent use.
type Webhook struct {
	o      Options
	client *http.Client
}

// New returns a webhook.
func New(o Options) *Webhook {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 64 << 10
	return &Webhook{o, &http.Client{Transport: transport, Timeout: o.Timeout, CheckRedirect: checkRedirect}}
}

// Name returns "webhook".
func (*Webhook) Name() string { return "webhook" }

// Deliver posts one event, a CloudEvent in JSON. It returns nil if the receiver has it.
// Invalid means that the receiver will never take it: it answered 410, or the event is not
// one. All other errors may pass; RetryAfter is the receiver's hint.
func (w *Webhook) Deliver(ctx context.Context, event []byte) error {
	envelope, _, err := events.Decode(event)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "read the event")
	}
	key, err := w.key(ctx)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.Address, bytes.NewReader(event))
	if err != nil {
		return fault.New(fault.Denied, "the address of the webhook is not one: correct [notify] webhook")
	}
	now := w.o.Clock.Now()
	r.Header.Set("content-type", contentType)
	r.Header.Set("user-agent", "rollout")
	r.Header.Set(IDHeader, envelope.ID)
	r.Header.Set(TimestampHeader, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(SignatureHeader, Sign(key, envelope.ID, now, event))
	answer, err := w.client.Do(r)
	if err != nil {
		return fault.WithKind(fault.Unavailable, withoutAddress(err), "call %s", r.URL.Host)
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // the status alone decides
	return judge(r.URL.Host, answer, said)
}

// key returns the bytes of the secret. One that begins with whsec_ is base64, as the
// specification writes keys; any other is the key itself.
func (w *Webhook) key(ctx context.Context) ([]byte, error) {
	value, err := w.o.Secret(ctx)
	if err != nil {
		return nil, fault.Wrap(err, "read the secret of the webhook")
	}
	coded, ok := strings.CutPrefix(value.Reveal(), "whsec_")
	if !ok {
		return []byte(value.Reveal()), nil
	}
	key, err := base64.StdEncoding.DecodeString(coded)
	if err != nil || len(key) == 0 {
		return nil, fault.New(fault.Denied, "the secret of the webhook begins with whsec_ and is not base64 after that")
	}
	return key, nil
}

// Sign returns the value of the signature's header for an attempt at a time.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// judge returns the error of an answer.
func judge(host string, answer *http.Response, said []byte) error {
	code := answer.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	words := text.Truncate(strings.Join(strings.Fields(strings.ToValidUTF8(string(said), "?")), " "), maxSaid, "…")
	if words != "" {
		words = ": " + words
	}
	e := &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("%s answered %d%s", host, code, words),
		RetryAfter: retry.After(answer.Header)}
	switch {
	case code == http.StatusGone:
		e.Kind = fault.Invalid
	case code == http.StatusTooManyRequests:
		e.Kind = fault.Throttled
	case code >= 300 && code < 400:
		e.Kind, e.Err = fault.Denied, fmt.Errorf("%s redirects elsewhere (%d)", host, code)
		e.Remedy = "name the final address as webhook in [notify]"
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		e.Kind = fault.Denied
	}
	return e
}

// checkRedirect follows a redirect that repeats the request on the same host, and that does
// not give up TLS. Any other answer is returned as it is.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	code := next.Response.StatusCode
	repeats := code == http.StatusTemporaryRedirect || code == http.StatusPermanentRedirect
	if !repeats || next.URL.Host != first.Host || next.URL.Scheme != first.Scheme || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// withoutAddress removes the address from an error of the client: its query may hold a token.
func withoutAddress(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
