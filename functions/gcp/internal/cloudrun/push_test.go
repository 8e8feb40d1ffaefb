package cloudrun

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
)

const account = "rollout-push@acme.iam.gserviceaccount.com"

// token returns an identity token as Cloud Run passes it on.
func token(claims map[string]any) string {
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString(body) + ".SIGNATURE_REMOVED_BY_GOOGLE"
}

// own is the token of the account that may push.
func own() string { return token(map[string]any{"email": account, "email_verified": true}) }

// pushText returns the body of a push.
func pushText(subscription, data string, attributes map[string]string) string {
	body, err := json.Marshal(map[string]any{
		"subscription": "projects/acme/subscriptions/" + subscription, "deliveryAttempt": 3,
		"message": map[string]any{"messageId": "42", "message_id": "42", "data": []byte(data), "attributes": attributes},
	})
	if err != nil {
		panic(err) // maps of strings
	}
	return string(body)
}

// post sends a request to a service and returns the status of the answer.
func post(service http.Handler, authorization, body string) int {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	service.ServeHTTP(w, r)
	return w.Code
}

var quiet = slog.New(slog.DiscardHandler)

func TestPushCountsOnlyFromItsSubscriptionAndAccount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		authorization, body string
		want                int
	}{
		"own":                  {own(), pushText("rollout-plan", "x", nil), 204},
		"no token":             {"", pushText("rollout-plan", "x", nil), 403},
		"no bearer token":      {"Basic eDp5", pushText("rollout-plan", "x", nil), 403},
		"not a token":          {"Bearer x.y", pushText("rollout-plan", "x", nil), 403},
		"claims not in base64": {"Bearer x.!.z", pushText("rollout-plan", "x", nil), 403},
		"claims not in JSON":   {"Bearer x.e.z", pushText("rollout-plan", "x", nil), 403},
		"another account": {token(map[string]any{"email": "other@acme.iam.gserviceaccount.com", "email_verified": true}),
			pushText("rollout-plan", "x", nil), 403},
		"unverified account":       {token(map[string]any{"email": account}), pushText("rollout-plan", "x", nil), 403},
		"another subscription":     {own(), pushText("rollout-finalize", "x", nil), 403},
		"another one that ends so": {own(), pushText("x-rollout-plan", "x", nil), 403},
		"no push":                  {own(), "{}", 400},
		"not JSON":                 {own(), "hello", 400},
		"too large":                {own(), pushText("rollout-plan", strings.Repeat("x", maxPush), nil), 400},
	} {
		handled := false
		service := Pushes(quiet, account, map[string]Handler{"rollout-plan": func(context.Context, Push) error {
			handled = true
			return nil
		}})
		if got := post(service, c.authorization, c.body); got != c.want || handled != (c.want == 204) {
			t.Errorf("%s: answered %d, handled %t; want %d", name, got, handled, c.want)
		}
	}
}

// Without an account that may push, a token without an account would do.
func TestNoAccountMayPushIfNoneIsNamed(t *testing.T) {
	t.Parallel()
	service := Pushes(quiet, "", map[string]Handler{"s": func(context.Context, Push) error { return nil }})
	if got := post(service, token(map[string]any{"email_verified": true}), pushText("s", "x", nil)); got != 403 {
		t.Errorf("answered %d, want 403", got)
	}
}

func TestPushIsReadWhole(t *testing.T) {
	t.Parallel()
	var got Push
	service := Pushes(quiet, account, map[string]Handler{"s": func(_ context.Context, p Push) error {
		got = p
		return nil
	}})
	post(service, own(), pushText("s", "data", map[string]string{"k": "v"}))
	if got.Subscription != "s" || got.ID != "42" || got.Attempt != 3 || string(got.Data) != "data" ||
		got.Attributes["k"] != "v" {
		t.Errorf("read %+v", got)
	}
	text := strings.Replace(pushText("s", "", nil), `"deliveryAttempt":3,`, "", 1)
	if p, err := readPush(strings.NewReader(text)); err != nil || p.Attempt != 1 || len(p.Data) > 0 {
		t.Errorf("without a dead-letter policy and data: %+v, %v", p, err)
	}
}

func FuzzReadPush(f *testing.F) {
	f.Add([]byte(pushText("s", "data", map[string]string{"k": "v"})))
	f.Add([]byte(`{"subscription":"/subscriptions/","message":{"messageId":"1","data":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := readPush(bytes.NewReader(body))
		if err != nil && !fault.Is(err, fault.Invalid) || err == nil && (p.ID == "" || p.Attempt < 1) {
			t.Errorf("%q: %+v, %v", body, p, err)
		}
	})
}

func TestFailedPushIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		nil: 204, fault.New(fault.Unavailable, "down"): 503, fault.New(fault.Canceled, "out of time"): 503,
	} {
		service := Pushes(quiet, account, map[string]Handler{"s": func(ctx context.Context, _ Push) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the work has no limit")
			}
			return err
		}})
		if got := post(service, own(), pushText("s", "x", nil)); got != want {
			t.Errorf("%v: answered %d, want %d", err, got, want)
		}
	}
}

func TestTimerIsCalledByItsAccount(t *testing.T) {
	t.Parallel()
	calls := 0
	var fails error
	service := Timer(quiet, account, func(context.Context) error { calls++; return fails })
	if got := post(service, "", ""); got != 403 || calls != 0 {
		t.Errorf("without a token: answered %d, %d calls", got, calls)
	}
	if got := post(service, own(), ""); got != 204 || calls != 1 {
		t.Errorf("answered %d, %d calls", got, calls)
	}
	fails = fault.New(fault.Unavailable, "down")
	if got := post(service, own(), ""); got != 503 {
		t.Errorf("a failure is answered with %d", got)
	}
}

// Work that takes longer than a push may wait is stopped and handed back in time.
func TestLongWorkIsHandedBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		service := Pushes(quiet, account, map[string]Handler{"s": func(ctx context.Context, _ Push) error {
			<-ctx.Done()
			return fault.WithKind(fault.Canceled, ctx.Err(), "plan the run")
		}})
		if got := post(service, own(), pushText("s", "x", nil)); got != 503 {
			t.Errorf("answered %d, want 503", got)
		}
		if spent := time.Since(began); spent != 540*time.Second {
			t.Errorf("answered after %v, want 9 minutes: Pub/Sub waits for 10", spent)
		}
	})
}
