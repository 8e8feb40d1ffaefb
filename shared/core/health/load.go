package health

import "time"

// Load is what a worker has seen of its engine lately. Nothing acts on it: it
// is for people who ask why a run is slow. The zero value is a worker that has
// asked nothing yet.
type Load struct {
	InFlight int `json:"busy"` // requests at the engine now
	// Rows counts the items that got their row since the worker started, and
	// Tokens the completion tokens of those rows.
	Rows   int64     `json:"rows"`
	Tokens int64     `json:"tokens"`
	RowAt  time.Time `json:"row_at,omitzero"` // of the last row, to within a beat
	// Rows and completion tokens a second, over the last half minute.
	Rate      float64 `json:"rate"`
	TokenRate float64 `json:"token_rate"`
	// MedianMS is how long the last requests that were answered took.
	MedianMS int64 `json:"median_ms"`
	// Faults counts the requests that ended in a fault since the worker
	// started; Fault is the kind of the last one. Example: "throttled".
	Faults    int64  `json:"faults"`
	LastFault string `json:"fault,omitempty"`
	// UnavailableReason says why the engine can't answer, since when; "" while it can.
	UnavailableReason string    `json:"away,omitempty"`
	UnavailableSince  time.Time `json:"away_since,omitzero"`
	// Servers are those behind the engine, if it is one of several.
	Servers []Server `json:"servers,omitempty"`
}

// MaxServers bounds how many servers a heartbeat tells of.
const MaxServers = 64

// Server is one inference server as a worker sees it.
type Server struct {
	Name     string `json:"name"`  // Example: "http://127.0.0.1:8000/v1"
	State    string `json:"state"` // of its circuit breaker: "closed" is well
	InFlight int    `json:"in_flight"`
	Limit    int    `json:"limit"` // requests at once; 0 if it has none of its own
	// Waiting is how many requests the server says wait at it, whoever they
	// are of; negative if it does not say.
	Waiting   int    `json:"waiting"`
	LastError string `json:"why,omitempty"` // its last trouble, if it is not well
}
