package ratelimit

import "time"

// Report is what one answer of a server says about its limits. The zero value says
// nothing.
type Report struct {
	// Limit is what the server states for a minute. A part that is 0 is not stated.
	Limit Amount
	// Refused says that the server refused the request because a limit is used up (429),
	// and OfTokens that this is its limit on tokens. AtOnce says that it counts the
	// requests at once, and not those of a minute.
	Refused, OfTokens, AtOnce bool
	// Wait is for how long the server wants no requests; 0 if it does not say.
	Wait time.Duration
}

// Bounds of what a server may say: it is not trusted.
const (
	// MaxWait is the longest time for which a server can stop a pool at once.
	MaxWait = 5 * time.Minute
	// maxStated bounds a stated limit. What is more, or not positive, says nothing.
	maxStated = 1_000_000_000
)

// bounded returns the report without what no server can mean.
func (r Report) bounded() Report {
	limit := r.Limit.vector()
	for k, n := range limit {
		if n <= 0 || n > maxStated {
			limit[k] = 0
		}
	}
	r.Limit = amount(limit)
	r.Wait = min(max(r.Wait, 0), MaxWait)
	return r
}

// Source says where a limit comes from. Example: "headers".
type Source string

// The sources of a limit.
const (
	FromConfig   Source = "config"
	FromHeaders  Source = "headers"  // the server states it
	FromRefusals Source = "refusals" // what the server answered in the minute before it refused
)

// Effective is the limit that holds, of what config, server and refusals say.
type Effective struct {
	Amount
	// Requests and Tokens say where each part comes from; "" for one without a limit.
	RequestsFrom, TokensFrom Source
}
