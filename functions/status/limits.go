package status

import (
	"slices"
	"time"

	"rollout/shared/core/health"
)

// PoolLimit is what the living workers of a pool together may ask their server in a
// minute, and what they ask of it.
type PoolLimit struct {
	Pool string `json:"pool"`
	// Requests and Tokens are the limits; 0 without one. RequestsFrom and TokensFrom say
	// where they come from; see health.Limit.
	Requests     int64  `json:"requests_per_minute"`
	RequestsFrom string `json:"requests_from,omitempty"`
	Tokens       int64  `json:"tokens_per_minute"`
	TokensFrom   string `json:"tokens_from,omitempty"`
	// UsedRequests and UsedTokens were used in the last minute.
	UsedRequests int64 `json:"used_requests"`
	UsedTokens   int64 `json:"used_tokens"`
	// Waiting is how many requests waited at once, in WaitingWorkers of Workers, since
	// their last heartbeats. WaitUntil is until when the server wants no requests; null if
	// it takes some.
	Waiting        int        `json:"waiting"`
	WaitingWorkers int        `json:"waiting_workers"`
	Workers        int        `json:"workers"`
	WaitUntil      *time.Time `json:"wait_until"`
}

// Limits returns the limits of the pools that have one, in the order of the workers. What
// workers know of a limit may differ for some seconds: the lowest counts. It is never nil.
func Limits(workers []WorkerStatus) []PoolLimit {
	out := []PoolLimit{}
	for _, w := range workers {
		l := w.Load.Limit
		if l == nil || !w.Alive {
			continue
		}
		i := slices.IndexFunc(out, func(p PoolLimit) bool { return p.Pool == w.Pool })
		if i < 0 {
			i = len(out)
			out = append(out, PoolLimit{Pool: w.Pool})
		}
		out[i].add(*l)
	}
	return out
}

// add adds what a worker reports.
func (p *PoolLimit) add(l health.Limit) {
	if l.Requests > 0 && (p.Requests == 0 || l.Requests < p.Requests) {
		p.Requests, p.RequestsFrom = l.Requests, l.RequestsFrom
	}
	if l.Tokens > 0 && (p.Tokens == 0 || l.Tokens < p.Tokens) {
		p.Tokens, p.TokensFrom = l.Tokens, l.TokensFrom
	}
	p.UsedRequests += l.UsedRequests
	p.UsedTokens += l.UsedTokens
	p.Waiting += l.Waiting
	p.Workers++
	if l.Waiting > 0 {
		p.WaitingWorkers++
	}
	if at := l.WaitUntil; !at.IsZero() && (p.WaitUntil == nil || at.After(*p.WaitUntil)) {
		p.WaitUntil = &at
	}
}

// Used returns the used share of the limit that is used most, 0 to 1 and a little more.
func (p PoolLimit) Used() (share float64) {
	if p.Requests > 0 {
		share = float64(p.UsedRequests) / float64(p.Requests)
	}
	if p.Tokens > 0 {
		share = max(share, float64(p.UsedTokens)/float64(p.Tokens))
	}
	return share
}
