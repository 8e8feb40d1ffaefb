package fakeaws

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
)

// BusEvent is an event on a bus of EventBridge.
type BusEvent struct {
	Bus, Source, DetailType string
	Detail                  json.RawMessage
}

// mostEntries is the largest number of entries of one request.
const mostEntries = 10

// putEventsInput is the body of a PutEvents.
type putEventsInput struct {
	Entries []struct {
		EventBusName, Source, DetailType, Detail string
	}
}

// busesOf returns the buses that a request names, each once. A request that can't be read
// names the default bus: it is authorized before it is refused.
func busesOf(q *request) (buses []string) {
	var in putEventsInput
	_ = json.Unmarshal(q.body, &in) // an invalid request is refused by putEvents
	seen := map[string]bool{}
	for _, e := range in.Entries {
		if bus := cmp.Or(e.EventBusName, "default"); !seen[bus] {
			seen[bus] = true
			buses = append(buses, bus)
		}
	}
	if len(buses) == 0 {
		return []string{"default"}
	}
	return buses
}

// putEvents serves PutEvents. Like EventBridge it answers 200 if it refuses some entries, and
// says which.
func (c *Cloud) putEvents(w http.ResponseWriter, q *request) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	var in putEventsInput
	if err := json.Unmarshal(q.body, &in); err != nil || q.operation != "PutEvents" || len(in.Entries) == 0 ||
		len(in.Entries) > mostEntries {
		w.Header().Set("X-Amzn-ErrorType", "ValidationException")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"__type":"ValidationException","message":"%d entries"}`, len(in.Entries))
		return
	}
	type entry struct {
		EventID      string `json:"EventId,omitempty"`
		ErrorCode    string `json:",omitempty"`
		ErrorMessage string `json:",omitempty"`
	}
	var out struct {
		FailedEntryCount int
		Entries          []entry
	}
	for n, e := range in.Entries {
		code := c.takeEvent(BusEvent{Bus: e.EventBusName, Source: e.Source, DetailType: e.DetailType,
			Detail: json.RawMessage(e.Detail)})
		if code == "" {
			out.Entries = append(out.Entries, entry{EventID: fmt.Sprintf("event-%d", n)})
			continue
		}
		out.FailedEntryCount++
		out.Entries = append(out.Entries, entry{ErrorCode: code, ErrorMessage: "the event is not taken"})
	}
	_ = json.NewEncoder(w).Encode(out) // the client may have left
	c.Meter.end(q, 0, nil)
}

// takeEvent returns the code of an event's refusal, or "".
func (c *Cloud) takeEvent(e BusEvent) (code string) {
	switch {
	case e.Source == "" || e.DetailType == "":
		return "InvalidArgument"
	case !json.Valid(e.Detail):
		return "MalformedDetail"
	case e.Bus != c.at.EventBusName():
		return "ResourceNotFoundException"
	case c.options.Taken == nil:
		return ""
	}
	return c.options.Taken(e)
}
