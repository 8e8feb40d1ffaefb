package scaling

import "time"

// Source is one of several places that a pool's machines may come from, as it was seen:
// for example a group of machines of one series.
type Source struct {
	Name    string
	Present int     // machines that exist: they boot or work
	Pending int     // machines that it was asked for and that do not exist
	Problem Problem // the newest reason why machines did not come; zero if none is known
}

// Problem is why a source did not deliver a machine.
type Problem struct {
	Kind ProblemKind
	At   time.Time
}

// ProblemKind says what keeps machines from coming.
type ProblemKind string

// Kinds of problems.
const (
	Stockout ProblemKind = "stockout" // the provider has no such machines now
	Quota    ProblemKind = "quota"    // the project may have no more of them
	Refused  ProblemKind = "refused"  // a policy forbids them, or a right is missing
	Unfit    ProblemKind = "unfit"    // the description of the machines is wrong, such as an absent image
	// Suspended: the provider, or a user, has told the fleet to start no machines.
	Suspended ProblemKind = "suspended"
	Unknown   ProblemKind = "unknown"
)

// Memory is what a source's past tells about its next request. The zero value is that of
// a source that was never asked.
type Memory struct {
	AskedAt  time.Time `json:"asked_at,omitzero"` // when the requests that are pending began
	Present  int       `json:"present,omitempty"` // machines that existed when it was last seen
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retry_at,omitzero"` // it is not asked before
}

// Order is what to request of a source now: to give up what is pending, or more machines.
type Order struct {
	Source   string
	Withdraw bool // give up all that is pending
	Add      int  // further machines, besides those present and pending
}

const (
	// patience is how long a source may have no machines before it counts as dry: it looks
	// in one zone after the other. Other problems do not pass by waiting a little.
	patience = 2 * time.Minute
	// firstPause is the pause after a failed request. It doubles with each further failure.
	firstPause = time.Minute
	// maxStockoutPause and maxPause are the longest pauses. Machines become free within
	// minutes; quotas, policies and images change when people change them.
	maxStockoutPause = 5 * time.Minute
	maxPause         = 15 * time.Minute
	// forgetAfter is how long after a pause the failures before it are forgotten.
	forgetAfter = time.Hour
)

// Spread decides which sources to ask so that want machines exist. Sources are in the
// order of preference: one is asked at a time, and the next one if it does not deliver.
//
//	        asked                      a problem
//	idle ──────────▶ pending ──────────────────────────▶ paused ──▶ idle
//	  ▲                 │ the machine came                 1, 2, 4 … min
//	  └─────────────────┘
//
// What is pending at a source with a problem is withdrawn, so that it does not come
// later, besides the machines of the next source. Machines that exist are never the
// subject of an order. Spread returns the orders, withdrawals first, and the memory to
// keep for the next call.
func Spread(want int, sources []Source, memory map[string]Memory, now time.Time) ([]Order, map[string]Memory) {
	next := make(map[string]Memory, len(sources))
	var withdrawn, added []Order
	missing := want
	for _, s := range sources {
		m := memory[s.Name].observe(s, now)
		if s.Pending > 0 && m.failed(s.Problem, now) {
			m = m.Pause(s.Problem.Kind, now)
			withdrawn = append(withdrawn, Order{Source: s.Name, Withdraw: true})
			s.Pending = 0
		}
		missing -= s.Present + s.Pending
		next[s.Name] = m
	}
	for _, s := range sources {
		m := next[s.Name]
		if missing <= 0 || now.Before(m.RetryAt) {
			continue
		}
		added = append(added, Order{Source: s.Name, Add: missing})
		missing = 0
		if s.Pending == 0 || m.AskedAt.IsZero() {
			m.AskedAt = now
		}
		next[s.Name] = m
	}
	return append(withdrawn, added...), next
}

// observe takes what is seen of a source into its memory. A source that delivered has
// no failures.
func (m Memory) observe(s Source, now time.Time) Memory {
	if s.Present > m.Present || !m.RetryAt.IsZero() && now.Sub(m.RetryAt) > forgetAfter {
		m.Failures, m.RetryAt = 0, time.Time{}
	}
	m.Present = s.Present
	return m
}

// failed reports whether a problem says that the pending machines will not come.
// Problems of earlier requests do not count.
func (m Memory) failed(p Problem, now time.Time) bool {
	if p.Kind == "" || p.At.Before(m.AskedAt) {
		return false
	}
	return p.Kind != Stockout && p.Kind != Unknown || now.Sub(m.AskedAt) >= patience
}

// Pause returns the memory after one more failure, also of a request that was refused.
func (m Memory) Pause(kind ProblemKind, now time.Time) Memory {
	longest := maxPause
	if kind == Stockout {
		longest = maxStockoutPause
	}
	m.Failures++
	m.RetryAt = now.Add(min(firstPause<<min(m.Failures-1, 10), longest))
	m.AskedAt = time.Time{}
	return m
}
