package liveness

import (
	"math"
	"time"
)

// Reading is what a server reports of its work. A number that it does not report is
// negative.
type Reading struct {
	Start   string  // names this start of the server; "" if it does not say
	Running float64 // requests that it works on
	Waiting float64 // requests in its queue
	Tokens  float64 // that it has generated
	Steps   float64 // of the model, each of which gives every running request a token
}

func (r Reading) counts() bool { return isCount(r.Tokens) || isCount(r.Steps) }

func isCount(n float64) bool { return n >= 0 && n <= maxCount } // false for NaN

// Bounds of what counters may do; see the package's documentation.
const (
	maxMissing = 3  // readings in a row without counters
	maxOwed    = 3  // readings in a row that stand still although answers came
	jump       = 4  // weight of a restart or a counter that goes back; growth weighs 1 against it
	maxJumps   = 24 // sum of the weights
	// A request is vouched for up to so many times its max_tokens, and some more for
	// counters that are read seldom.
	maxShare   = 8
	extraShare = 1024
	// minSilence is the least silence for whole answers: counters are read every second.
	minSilence = 5 * time.Second
	// maxCount bounds what is taken for a number of requests, tokens or steps.
	maxCount = 1e15
)

// Server is what is known of one server.
type Server struct {
	silence time.Duration // the longest that a stream may have
	last    Reading
	read    bool // last is a reading with counters
	missing int
	ignored bool    // the counters can't be right
	jumps   int     // weights of restarts and of counters that went back
	owed    bool    // an answer with tokens came since the counters grew
	still   int     // readings since then
	share   float64 // tokens that one request could have had, on average, since the first reading
	models  map[string]*model
}

// New returns a Server of which nothing is known. Silence is how long a stream may be
// silent.
func New(silence time.Duration) *Server {
	return &Server{silence: silence, models: map[string]*model{}}
}

// Counted reports whether the server's counters show whether it works.
func (s *Server) Counted() bool { return s.read && !s.ignored && s.missing < maxMissing }

// Read takes a reading and reports whether it shows work since the last one.
func (s *Server) Read(r Reading) (worked bool) {
	if !r.counts() {
		s.missing++
		return false
	}
	before, known := s.last, s.read
	s.missing, s.last, s.read = 0, r, true
	tokens, steps := grown(before.Tokens, r.Tokens), grown(before.Steps, r.Steps)
	switch {
	case !known:
		return false
	case before.Start != r.Start, tokens < 0, steps < 0:
		s.jumps += jump
		s.ignored = s.ignored || s.jumps >= maxJumps
		s.owed, s.still = false, 0
		return false
	case tokens == 0 && steps == 0:
		if s.owed {
			s.still++
			s.ignored = s.ignored || s.still >= maxOwed
		}
		return false
	}
	s.jumps = max(0, s.jumps-1)
	s.owed, s.still = false, 0
	s.addShare(tokens, steps, before, r)
	return true
}

// addShare adds the tokens that an average request got between two readings. One that
// waits in the queue gets none, but its turn comes: it counts as well.
func (s *Server) addShare(tokens, steps float64, before, now Reading) {
	running := max(1, countOf(before.Running), countOf(now.Running))
	all := running + countOf(before.Waiting) + countOf(now.Waiting)
	s.share = min(s.share+max(tokens/all, steps*running/all), maxCount)
}

// countOf returns a number of requests; 0 if it is not reported.
func countOf(n float64) float64 {
	if !isCount(n) {
		return 0
	}
	return n
}

// grown returns by how much a counter grew; 0 if it is not reported.
func grown(from, to float64) float64 {
	if !isCount(from) || !isCount(to) {
		return 0
	}
	return to - from
}

// Request is what the Server keeps of a request in flight.
type Request struct {
	Whole     bool // it must not be streamed
	model     *model
	began     time.Time
	maxTokens int64
	share     float64 // of the server, when it began
}

// Begin begins a request for a model, by a name that tells it from other models of the
// server. It decides whether the request is whole. MaxTokens is the most that the answer
// may have; 0 if that is not known.
func (s *Server) Begin(name string, maxTokens int64, now time.Time) Request {
	q := Request{model: s.model(name), began: now, maxTokens: maxTokens, share: s.share}
	q.Whole = maxTokens > 0 && s.silence >= minSilence && !q.model.streams && (s.Counted() || q.model.paced())
	return q
}

// Vouches reports whether the silence of a whole request, with so many in flight, is
// explained. On a counted server it is called after a reading that showed work.
func (s *Server) Vouches(q Request, now time.Time, inFlight int) bool {
	if s.Counted() {
		return q.maxTokens <= 0 || s.share-q.share <= maxShare*float64(q.maxTokens)+extraShare
	}
	return now.Sub(q.began)+s.silence < q.model.longest(q.maxTokens, inFlight)
}

// Generated returns an estimate of the tokens that a whole request has got so far: its
// share of what the server generated, or else by the pace.
func (s *Server) Generated(q Request, now time.Time) int64 {
	n := s.share - q.share
	if !s.Counted() {
		n = q.model.generated(now.Sub(q.began))
	}
	if q.maxTokens > 0 {
		n = min(n, float64(q.maxTokens))
	}
	return int64(min(max(n, 0), math.MaxInt32))
}

// Answered records an answer of so many tokens, with so many requests in flight. Known
// says that the server reported the tokens.
func (s *Server) Answered(q Request, tokens int64, known bool, now time.Time, inFlight int) {
	if known && tokens > 0 && !s.owed {
		s.owed, s.still = true, 0
	}
	q.model.answered(q.Whole, now.Sub(q.began), tokens, known, inFlight)
}

// Cut records that the connection of a whole request broke, or that a gateway gave up,
// although the server works. It reports whether a stream would do better.
func (s *Server) Cut(q Request, now time.Time) (retryAsStream bool) {
	age := now.Sub(q.began)
	if !q.Whole || age < minCut {
		return false
	}
	q.model.cut(age, now)
	return true
}

// FalseAlarm records that a whole request was ended for its silence although the server
// works.
func (s *Server) FalseAlarm(q Request, now time.Time) { q.model.falseAlarm(now) }

// Streams reports whether all requests of the model are streamed from now on.
func (s *Server) Streams(name string) bool { return s.model(name).streams }

// maxModels bounds the models of a server that are told apart.
const maxModels = 64

func (s *Server) model(name string) *model {
	m := s.models[name]
	if m == nil {
		if len(s.models) >= maxModels {
			clear(s.models)
		}
		m = &model{}
		s.models[name] = m
	}
	return m
}
