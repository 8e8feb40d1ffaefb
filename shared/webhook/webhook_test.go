package webhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/secret"
	"rollout/shared/webhook"
)

var now = time.Unix(1614265330, 0)

// event returns the bytes of an event with that id.
func event(t *testing.T, id string) []byte {
	t.Helper()
	b, err := events.Encode(events.NotifyTest{Text: "a test"}, events.Meta{ID: id, Source: "rollout/test", Time: now})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// to returns a webhook to an address.
func to(address, key string) *webhook.Webhook {
	return webhook.New(webhook.Options{Address: address, Timeout: time.Minute, Clock: clock.Fixed(now),
		Secret: func(context.Context) (secret.Value, error) { return secret.NewValue(key), nil }})
}

// receive starts a receiver, which ends with the test.
func receive(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// The signature is that of the specification's own example.
func TestSignIsThatOfTheSpecification(t *testing.T) {
	t.Parallel()
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := webhook.Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", now, []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signed as %s, want %s", got, want)
	}
}

func TestAnEventIsPostedAndSigned(t *testing.T) {
	t.Parallel()
	body := event(t, "run.1")
	for name, c := range map[string]struct{ secret, key string }{
		"a text":       {"correct horse", "correct horse"},
		"whsec_base64": {"whsec_" + base64.StdEncoding.EncodeToString([]byte("\x00\xff key")), "\x00\xff key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got *http.Request
			var read []byte
			s := receive(t, func(w http.ResponseWriter, r *http.Request) {
				got = r
				read, _ = io.ReadAll(r.Body)
				w.WriteHeader(http.StatusNoContent)
			})
			if err := to(s.URL+"/hook?token=t", c.secret).Deliver(t.Context(), body); err != nil {
				t.Fatal(err)
			}
			want := webhook.Sign([]byte(c.key), "run.1", now, body)
			h := got.Header
			if got.Method != http.MethodPost || got.URL.String() != "/hook?token=t" || string(read) != string(body) ||
				h.Get(webhook.IDHeader) != "run.1" || h.Get(webhook.TimestampHeader) != "1614265330" ||
				h.Get(webhook.SignatureHeader) != want || h.Get("Content-Type") != "application/cloudevents+json" {
				t.Errorf("%s %s %v\n%s\nwant the signature %s", got.Method, got.URL, h, read, want)
			}
		})
	}
}

func TestAnswersDecideWhatHappensNext(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]fault.Kind{
		500: fault.Unavailable, 502: fault.Unavailable, 404: fault.Unavailable, 400: fault.Unavailable,
		429: fault.Throttled, 401: fault.Denied, 403: fault.Denied, 410: fault.Invalid, 301: fault.Denied,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s := receive(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "not\n now "+strings.Repeat("x", 1<<20))
			})
			err := to(s.URL+"?token=hidden", "k").Deliver(t.Context(), event(t, "1"))
			if fault.KindOf(err) != want || fault.RetryAfter(err) != 7*time.Second {
				t.Fatalf("%v: %s, to retry after %s; want %s", err, fault.KindOf(err), fault.RetryAfter(err), want)
			}
			text := err.Error()
			if len(text) > 500 || strings.Contains(text, "hidden") || !strings.Contains(text, fmt.Sprint(status)) {
				t.Errorf("the error says %s", text)
			}
		})
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	t.Parallel()
	var elsewhere, final int
	other := receive(t, func(http.ResponseWriter, *http.Request) { elsewhere++ })
	s := receive(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/final", http.StatusPermanentRedirect)
		case "/get": // the client would repeat it as GET, without the event
			http.Redirect(w, r, "/final", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/final":
			if b, _ := io.ReadAll(r.Body); r.Method == http.MethodPost && len(b) > 0 {
				final++
			}
		}
	})
	for path, taken := range map[string]bool{"/same": true, "/get": false, "/other": false, "/loop": false} {
		err := to(s.URL+path, "k").Deliver(t.Context(), event(t, "1"))
		if (err == nil) != taken {
			t.Errorf("%s: %v", path, err)
		}
	}
	if elsewhere != 0 || final != 1 {
		t.Errorf("the other host was called %d times, the final address has %d events", elsewhere, final)
	}
}

func TestAReceiverThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	address := s.URL
	s.Close()
	err := to(address+"/?token=hidden", "k").Deliver(t.Context(), event(t, "1"))
	if !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("%v", err)
	}
}

func TestASecretThatCannotBeUsedSendsNothing(t *testing.T) {
	t.Parallel()
	calls := 0
	s := receive(t, func(http.ResponseWriter, *http.Request) { calls++ })
	err := to(s.URL, "whsec_not base64").Deliver(t.Context(), event(t, "1"))
	if !fault.Is(err, fault.Denied) || strings.Contains(err.Error(), "not base64,") {
		t.Errorf("%v", err)
	}
	missing := webhook.New(webhook.Options{Address: s.URL, Timeout: time.Minute, Clock: clock.Fixed(now),
		Secret: func(context.Context) (secret.Value, error) {
			return secret.Value{}, fault.New(fault.NotFound, "secret %q is not set", "webhook-key")
		}})
	if err := missing.Deliver(t.Context(), event(t, "1")); !fault.Is(err, fault.NotFound) {
		t.Errorf("without a secret: %v", err)
	}
	if calls != 0 {
		t.Errorf("the receiver was called %d times", calls)
	}
}
