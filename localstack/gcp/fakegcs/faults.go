package fakegcs

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// Faults make the first attempt of requests fail, at random: some are throttled
// before they do anything, others are performed and lose their answer, or break off
// in the middle of it. The SDK's retries succeed.
type Faults struct {
	mu  sync.Mutex
	rng *rand.Rand
	// Shares of the first attempts.
	ThrottledPercent, LostReplyPercent, BrokenReplyPercent int
}

// NewFaults returns faults whose order depends on the seed.
func NewFaults(seed uint64, throttled, lost, broken int) *Faults {
	return &Faults{rng: rand.New(rand.NewPCG(seed, 5)), ThrottledPercent: throttled, LostReplyPercent: lost,
		BrokenReplyPercent: broken}
}

// firstAttempt is in a header of the SDK's requests.
const firstAttempt = "gccl-attempt-count/1"

// serve answers a request, perhaps with a fault.
func (f *Faults) serve(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	if f == nil || !strings.Contains(strings.Join(r.Header.Values("X-Goog-Api-Client"), " ")+" ", firstAttempt+" ") {
		next(w, r)
		return
	}
	f.mu.Lock()
	n := f.rng.IntN(100)
	f.mu.Unlock()
	lost := f.ThrottledPercent + f.LostReplyPercent
	switch {
	case n < f.ThrottledPercent:
		(&problem{http.StatusTooManyRequests, "rateLimitExceeded", "slow down"}).write(w)
	case n < lost:
		next(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case n < lost+f.BrokenReplyPercent && !strings.HasPrefix(r.URL.Path, "/storage/") && r.Method == http.MethodGet:
		answer := httptest.NewRecorder()
		next(answer, r)
		answer.Body.Truncate(answer.Body.Len() / 2)
		forward(w, answer)
		panic(http.ErrAbortHandler)
	default:
		next(w, r)
	}
}
