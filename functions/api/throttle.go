package api

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/listen"
	"rollout/shared/observe/probes"
)

// Rates of a public API: what one instance answers in the long run, and at once after a
// pause. A person's tools ask every few seconds.
const (
	requestsPerSecond, requestsAtOnce = 10, 50
	probesPerSecond, probesAtOnce     = 1, 10
	signInsPerSecond, signInsAtOnce   = 2, 20
	pagesPerSecond, pagesAtOnce       = 20, 100
)

// Throttled returns the service with an API that answers no more than 10 requests a second,
// and 50 at once; of the public paths 1 and 10, of those to sign in 2 and 20, and of the page's
// files 20 and 100. It refuses the others with 429 and Retry-After before it reads anything. What
// needs no token has buckets of its own, so that strangers can't use up what callers with a token
// have.
//
// The buckets are those of one process, without a document for all: a refusal must cost
// nothing. Where an instance of a function answers one request at a time, a bucket
// bounds what the instance reads, and for how long a flood keeps it busy. The number of
// instances is bounded by that time, and by what the account may have.
func (s *Service) Throttled() *Service {
	out := *s
	out.throttle = newThrottle(s.ports.Clock)
	return &out
}

// throttle bounds how many requests are answered.
type throttle struct {
	clock    clock.Clock
	requests *rate.Limiter
	probes   *rate.Limiter // of the public paths
	signIns  *rate.Limiter // of the session
	pages    *rate.Limiter // of the page's files
}

func newThrottle(c clock.Clock) *throttle {
	return &throttle{
		clock:    c,
		requests: rate.NewLimiter(requestsPerSecond, requestsAtOnce),
		probes:   rate.NewLimiter(probesPerSecond, probesAtOnce),
		signIns:  rate.NewLimiter(signInsPerSecond, signInsAtOnce),
		pages:    rate.NewLimiter(pagesPerSecond, pagesAtOnce),
	}
}

// limit returns the handler behind the throttle. A nil throttle limits nothing.
func (t *throttle) limit(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bucket := t.requests
		switch {
		case slices.Contains(probes.PublicPaths, r.URL.Path):
			bucket = t.probes
		case r.URL.Path == listen.SessionPath:
			bucket = t.signIns
		case isPage(r.URL.Path):
			bucket = t.pages
		}
		if wait := take(bucket, t.clock.Now()); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			listen.WriteError(w, http.StatusTooManyRequests, fault.Throttled.String(),
				"too many requests: ask again after the seconds in the header Retry-After")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// take takes one token out of the bucket, or returns after which time there will be one.
func take(bucket *rate.Limiter, now time.Time) time.Duration {
	r := bucket.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
