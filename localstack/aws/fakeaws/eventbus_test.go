package fakeaws_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"rollout/events"
	"rollout/localstack/aws/fakeaws"
	"rollout/shared/aws"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// The product's driver notices that EventBridge, which answers 200, did not take an event.
func TestRefusedEventsAreErrorsOfTheDriver(t *testing.T) {
	t.Parallel()
	emulator := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(emulator.Close)
	const text = "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = \"acme\"\n[cloud.s3]\n" +
		"bucket = \"acme-batches\"\n"
	var taken []string
	code := ""
	c, err := fakeaws.Open(fakeaws.Options{Backend: emulator.URL, Config: text,
		Taken: func(e fakeaws.BusEvent) string {
			if code == "" {
				taken = append(taken, e.Bus+" "+e.Source+" "+e.DetailType+" "+string(e.Detail))
			}
			return code
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := fakeaws.OpenInstallation(t.Context(), d, c.URL, "reclaim")
	if err != nil {
		t.Fatal(err)
	}
	event, err := events.Encode(events.NotifyTest{Text: "a test"},
		events.Meta{Source: "rollout/acme-batches", Subject: "notify/test", Time: time.Unix(1772366400, 0)})
	if err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []struct {
		code string
		kind fault.Kind
	}{{"InternalFailure", fault.Unavailable}, {"ThrottlingException", fault.Throttled}} {
		code = refusal.code
		if err := s.EventBus().Deliver(t.Context(), event); !fault.Is(err, refusal.kind) || len(taken) > 0 {
			t.Errorf("%s: %v, and %q was taken", code, err, taken)
		}
	}
	code = ""
	if err := s.EventBus().Deliver(t.Context(), event); err != nil {
		t.Error(err)
	}
	want := []string{"acme-events rollout/acme-batches rollout.notify.test.v1 " + string(event)}
	if !slices.Equal(taken, want) {
		t.Errorf("%q was taken, want %q", taken, want)
	}
	other := aws.NewEventBus(s.AWS, "other-events", aws.EventBusOptions{})
	if err := other.Deliver(t.Context(), event); !fault.Is(err, fault.NotFound) {
		t.Errorf("a bus that does not exist: %v", err)
	}
}
