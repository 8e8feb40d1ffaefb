package aws

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"rollout/events"
	"rollout/shared/fault"
)

// eventsAPI is a fake EventBridge, as an HTTPClient of the SDK. It answers each request with
// the same status and body.
type eventsAPI struct {
	status int
	answer string
	taken  []string
}

func (a *eventsAPI) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.taken = append(a.taken, string(body))
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}},
		Body: io.NopCloser(strings.NewReader(a.answer))}, nil
}

func (a *eventsAPI) bus() *EventBus {
	once := func(o *eventbridge.Options) { o.Retryer = awssdk.NopRetryer{} }
	return NewEventBus(testConfig(a), "acme-events", EventBusOptions{SDK: []func(*eventbridge.Options){once}})
}

// anEvent is an event that people are told.
func anEvent(t *testing.T) []byte {
	t.Helper()
	b, err := events.Encode(events.RunPaused{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", Phase: "paused", Reason: `a "reason"`},
		events.Meta{ID: "01JD2ZQ4T5W0M1X9YB7R3K8CVE.1", Source: "rollout/acme", Subject: "01JD2ZQ4T5W0M1X9YB7R3K8CVE",
			Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnEventOnTheBusIsTheWholeCloudEvent(t *testing.T) {
	t.Parallel()
	api := &eventsAPI{status: http.StatusOK, answer: `{"FailedEntryCount":0,"Entries":[{"EventId":"1"}]}`}
	event := anEvent(t)
	if err := api.bus().Deliver(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Entries []struct {
			EventBusName, Source, DetailType, Detail string
			Time                                     float64
		}
	}
	if len(api.taken) != 1 || json.Unmarshal([]byte(api.taken[0]), &got) != nil || len(got.Entries) != 1 {
		t.Fatalf("it sent %q", api.taken)
	}
	if e := got.Entries[0]; e.EventBusName != "acme-events" || e.Source != "rollout/acme" ||
		e.DetailType != string(events.TypeRunPaused) || e.Detail != string(event) || e.Time != 1772366400 {
		t.Errorf("it sent %+v", e)
	}
}

// EventBridge answers 200 also when it took nothing.
func TestEventsThatTheBusDoesNotTakeAreErrors(t *testing.T) {
	t.Parallel()
	entry := func(code string) string {
		return `{"FailedEntryCount":1,"Entries":[{"ErrorCode":"` + code + `","ErrorMessage":"so it says"}]}`
	}
	for name, c := range map[string]struct {
		status int
		answer string
		kind   fault.Kind
	}{
		"a refused entry":             {http.StatusOK, entry("ThrottlingException"), fault.Throttled},
		"an entry that failed":        {http.StatusOK, entry("InternalFailure"), fault.Unavailable},
		"an entry of unknown failure": {http.StatusOK, entry("SomethingNew"), fault.Unavailable},
		"a count without an entry":    {http.StatusOK, `{"FailedEntryCount":1,"Entries":[]}`, fault.Unavailable},
		"a missing bus":               {http.StatusOK, entry("ResourceNotFoundException"), fault.NotFound},
		"a wrong argument":            {http.StatusOK, entry("InvalidArgument"), fault.Unavailable},
		"a malformed event":           {http.StatusOK, entry("MalformedDetail"), fault.Invalid},
		"a missing permission":        {http.StatusBadRequest, `{"__type":"AccessDeniedException"}`, fault.Denied},
		"a wrong request":             {http.StatusBadRequest, `{"__type":"ValidationException"}`, fault.Denied},
		"an outage":                   {http.StatusInternalServerError, `{"__type":"InternalException"}`, fault.Unavailable},
	} {
		api := &eventsAPI{status: c.status, answer: c.answer}
		if err := api.bus().Deliver(t.Context(), anEvent(t)); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
	}
}

func TestWhatIsNoEventIsNeverSent(t *testing.T) {
	t.Parallel()
	api := &eventsAPI{status: http.StatusOK}
	if err := api.bus().Deliver(t.Context(), []byte("{}")); !fault.Is(err, fault.Invalid) || len(api.taken) > 0 {
		t.Errorf("%v, and %q was sent", err, api.taken)
	}
}
