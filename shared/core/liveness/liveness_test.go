package liveness

import (
	"math"
	"testing"
	"time"
)

// silence is the longest of a stream in the tests.
const silence = 2 * time.Minute

// world is a server and the time.
type world struct {
	*Server
	now    time.Time
	tokens float64
}

func newWorld() *world { return &world{Server: New(silence), now: time.Unix(1000, 0)} }

// reads lets a second pass in which the server generates so many tokens for its running
// requests, and takes a reading.
func (w *world) reads(tokens, running float64) bool {
	w.now = w.now.Add(time.Second)
	w.tokens += tokens
	return w.Read(Reading{Start: "1", Running: running, Tokens: w.tokens, Steps: -1})
}

// readsNothing takes a reading of a server that reports nothing.
func (w *world) readsNothing() { w.Read(Reading{Running: -1, Waiting: -1, Tokens: -1, Steps: -1}) }

func (w *world) begin(maxTokens int64) Request { return w.Begin("m", maxTokens, w.now) }

// answers lets an answer of so many tokens take that time.
func (w *world) answers(took time.Duration, tokens int64, known bool) {
	q := w.begin(1000)
	w.now = w.now.Add(took)
	w.Answered(q, tokens, known, w.now, 1)
}

func TestWhichRequestsAreWhole(t *testing.T) {
	t.Parallel()
	counted := func(w *world) { w.reads(0, 1) }
	gone := func(readings int) func(*world) {
		return func(w *world) {
			for range readings {
				w.readsNothing()
			}
		}
	}
	paced := func(w *world) {
		for range 8 {
			w.answers(time.Second, 100, true)
		}
	}
	for name, c := range map[string]struct {
		before []func(*world)
		max    int64
		want   bool
	}{
		"nothing is known":            {nil, 100, false},
		"counters":                    {[]func(*world){counted}, 100, true},
		"counters, but no max_tokens": {[]func(*world){counted}, 0, false},
		"a pace":                      {[]func(*world){paced}, 100, true},
		"a pace, but no max_tokens":   {[]func(*world){paced}, 0, false},
		"seven answers":               {[]func(*world){func(w *world) { seven(w, 100, true) }}, 100, false},
		"answers without token counts": {[]func(*world){func(w *world) { seven(w, 9, false); seven(w, 0, false) }},
			100, false},
		"counters that are gone for two readings": {[]func(*world){counted, gone(2)}, 100, true},
		"counters that are gone":                  {[]func(*world){counted, gone(3)}, 100, false},
		"counters that are back":                  {[]func(*world){counted, gone(3), counted}, 100, true},
		"a whole answer without token counts": {[]func(*world){counted, func(w *world) { w.answers(time.Second, 5, false) }},
			100, false},
	} {
		w := newWorld()
		for _, f := range c.before {
			f(w)
		}
		if q := w.begin(c.max); q.Whole != c.want {
			t.Errorf("%s: whole is %v, want %v", name, q.Whole, c.want)
		}
	}
	short := New(2 * time.Second)
	short.Read(Reading{Tokens: 1})
	if short.Begin("m", 10, time.Unix(0, 0)).Whole {
		t.Error("a request is whole although it may be silent for 2 s alone")
	}
}

func seven(w *world, tokens int64, known bool) {
	for range 7 {
		w.answers(time.Second, tokens, known)
	}
}

// Ten minutes for an answer are fine while tokens grow, and a server that stands still
// is not vouched for.
func TestCountersVouchWhileTheyGrow(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.reads(0, 0)
	q := w.begin(20_000)
	for range 600 {
		if !w.reads(30, 1) || !w.Vouches(q, w.now, 1) {
			t.Fatalf("not vouched for after %s", w.now.Sub(q.began))
		}
	}
	if got := w.Generated(q, w.now); got != 18_000 {
		t.Errorf("%d tokens are estimated, want 18000", got)
	}
	for range 200 {
		if w.reads(0, 1) {
			t.Fatal("counters that stand still show work")
		}
	}
}

// The tokens of others do not vouch for a request that the server lost: each running
// request gets one token a step.
func TestTokensOfOthersVouchForALostRequestForABoundedTime(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.reads(0, 0)
	q := w.begin(100)
	seconds := 0
	for ; w.reads(500, 10) && w.Vouches(q, w.now, 1); seconds++ { // 50 tokens a second each
		if seconds > 60 {
			t.Fatal("a request of 100 tokens is vouched for after 3,000 steps")
		}
	}
	if seconds < 16 {
		t.Errorf("vouched for during %d s, want at least 8 times as long as the answer takes", seconds)
	}
}

// A request that waits in a long queue is not lost.
func TestRequestsInTheQueueAreVouchedFor(t *testing.T) {
	t.Parallel()
	w := newWorld()
	read := func(tokens float64) bool {
		w.now, w.tokens = w.now.Add(time.Second), w.tokens+tokens
		return w.Read(Reading{Running: 10, Waiting: 990, Tokens: w.tokens, Steps: -1})
	}
	read(0)
	q := w.begin(100)
	for second := range 1000 { // 99 rounds of 10 requests before its turn, 10 s each
		if !read(100) || !w.Vouches(q, w.now, 1) {
			t.Fatalf("not vouched for after %d s", second)
		}
	}
}

func TestStepsOfTheModelAreSignsOfWork(t *testing.T) {
	t.Parallel()
	s := New(silence)
	read := func(steps float64) bool { return s.Read(Reading{Running: 4, Tokens: 100, Steps: steps}) }
	if read(1) || !read(2) || read(2) || !read(3) {
		t.Error("steps of the model show no work")
	}
}

func TestCountersThatCannotBeRightAreIgnored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read func(w *world, n int) Reading
		want bool // counted after 60 readings, with an answer before each
	}{
		"they grow":    {func(_ *world, n int) Reading { return Reading{Tokens: float64(n)} }, true},
		"stand still":  {func(*world, int) Reading { return Reading{Tokens: 7} }, false},
		"two replicas": {func(_ *world, n int) Reading { return Reading{Tokens: float64(n + n%2*1000)} }, false},
		"two replicas with starts": {func(_ *world, n int) Reading {
			return Reading{Start: string(rune('a' + n%2)), Tokens: float64(n)}
		}, false},
		"three restarts": {func(_ *world, n int) Reading {
			return Reading{Start: string(rune('a' + n/15)), Tokens: float64(n % 15)}
		}, true},
		"NaN":      {func(*world, int) Reading { return Reading{Tokens: math.NaN(), Steps: -1} }, false},
		"infinity": {func(*world, int) Reading { return Reading{Tokens: math.Inf(1), Steps: -1} }, false},
		"huge":     {func(_ *world, n int) Reading { return Reading{Tokens: float64(n) * 1e12} }, true},
		"too huge": {func(_ *world, n int) Reading { return Reading{Tokens: float64(n+1) * 1e300, Steps: -1} }, false},
	} {
		w := newWorld()
		for n := range 60 {
			w.answers(time.Second, 10, true)
			w.Read(c.read(w, n))
		}
		if w.Counted() != c.want {
			t.Errorf("%s: counted is %v, want %v", name, w.Counted(), c.want)
		}
		q := w.begin(100)
		for n := range 10 {
			w.Read(c.read(w, 60+n))
		}
		if got := w.Generated(q, w.now); got < 0 || got > 100 {
			t.Errorf("%s: %d tokens are estimated for an answer of at most 100", name, got)
		}
	}
}

func TestPaceVouchesForTheTimeOfTheLongestAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for range 8 {
		w.answers(10*time.Second, 100, true) // 0.1 s a token
	}
	for _, c := range []struct {
		max      int64
		inFlight int
		until    time.Duration // that a stream might begin to be silent
	}{
		{100, 1, 0},                             // 30 s: less than a silence
		{1000, 1, 300*time.Second - silence},    // three times the 100 s
		{1000, 4, 1200*time.Second - silence},   // they may be answered one after the other
		{1_000_000, 1, time.Hour - silence},     // never longer
		{1_000_000, 100, time.Hour - silence},   //
		{0, 1, 0},                               // a whole answer by the user's wish
		{math.MaxInt64, 1, time.Hour - silence}, //
	} {
		q := w.begin(c.max)
		if c.until > 0 && !w.Vouches(q, q.began.Add(c.until-time.Second), c.inFlight) {
			t.Errorf("max_tokens %d, %d in flight: not vouched for before %s", c.max, c.inFlight, c.until)
		}
		if w.Vouches(q, q.began.Add(c.until+time.Second), c.inFlight) {
			t.Errorf("max_tokens %d, %d in flight: vouched for after %s", c.max, c.inFlight, c.until)
		}
	}
}

// Answers of one token say how long a request waits, and not how fast tokens come.
func TestPaceIsThatOfLongAnswersIfThereAreEnough(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for range 20 {
		w.answers(2*time.Second, 1, true)
	}
	for range 4 {
		w.answers(12*time.Second, 100, true)
	}
	q := w.begin(1000)
	if w.Vouches(q, q.began.Add(361*time.Second-silence), 1) {
		t.Error("1,000 tokens at 0.12 s may take more than 360 s")
	}
}

func TestCutsAtOneAgeMakeStreams(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	type cut struct{ age, pause time.Duration }
	for name, c := range map[string]struct {
		cuts []cut
		want bool
	}{
		"once":                         {[]cut{{minute, 0}}, false},
		"twice":                        {[]cut{{minute, minute}, {61 * time.Second, 0}}, true},
		"at different ages":            {[]cut{{minute, minute}, {90 * time.Second, minute}, {30 * time.Second, 0}}, false},
		"many at once":                 {[]cut{{minute, -minute}, {minute, -minute}, {minute, 0}}, false},
		"early":                        {[]cut{{time.Second, minute}, {time.Second, minute}, {time.Second, 0}}, false},
		"with a longer answer between": {[]cut{{minute, -1}, {minute, 0}}, false},
	} {
		w := newWorld()
		w.reads(0, 1)
		for _, cut := range c.cuts {
			q := w.begin(100)
			w.now = w.now.Add(cut.age)
			if streams := w.Cut(q, w.now); streams != (cut.age >= minCut) {
				t.Errorf("%s: asked again as a stream after %s: %v", name, cut.age, streams)
			}
			if cut.pause == -1 {
				w.answers(2*time.Minute, 10, true)
				continue
			}
			w.now = w.now.Add(cut.pause)
		}
		if w.Streams("m") != c.want || w.begin(100).Whole == c.want || w.Streams("another model") {
			t.Errorf("%s: all are streams: %v, want %v", name, w.Streams("m"), c.want)
		}
	}
}

func TestSecondFalseAlarmMakesStreams(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.reads(0, 1)
	for range 64 { // requests of one episode
		w.FalseAlarm(w.begin(100), w.now)
	}
	if w.Streams("m") {
		t.Fatal("one episode makes all requests streams")
	}
	w.now = w.now.Add(time.Minute)
	w.FalseAlarm(w.begin(100), w.now)
	if !w.Streams("m") {
		t.Fatal("the second episode does not")
	}
}

func TestModelsOfAServerAreBounded(t *testing.T) {
	t.Parallel()
	s := New(silence)
	for n := range 10 * maxModels {
		s.Begin(string(rune(n)), 1, time.Unix(0, 0))
	}
	if len(s.models) > maxModels {
		t.Errorf("%d models are kept", len(s.models))
	}
}
