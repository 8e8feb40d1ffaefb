package blame

import (
	"container/heap"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// adversary decides the outcomes of requests: items that are bad for good, faults of a
// server or a run for a time, and failures at random. Its
// worker may be restarted.
type adversary struct {
	w        *world
	bad      []Outcome // by item; Answered: a good one
	random   float64   // the share of requests that fail for a moment
	episodes []episode
	small    Outcome // of small questions
}

// episode is a fault for a time. An end of 0 is never.
type episode struct {
	server     string // "" for all
	run        int    // -1 for all
	begin, end time.Duration
	outcome    Outcome
}

var (
	settings = []Outcome{"status_401", "status_403", "status_404"}
	outages  = []Outcome{"status_429", "status_503"}
)

func (a *adversary) outcome(server string, item int, at time.Duration) (Outcome, time.Duration) {
	took := time.Duration(1 + a.w.rand.IntN(int(100*time.Millisecond)))
	run := -1 - item
	if item >= 0 {
		run = item % len(a.w.runs)
	}
	for _, e := range a.episodes {
		if (e.server == "" || e.server == server) && (e.run < 0 || e.run == run) && at >= e.begin &&
			(e.end == 0 || at < e.end) {
			return e.outcome, took / 10
		}
	}
	if a.w.rand.Float64() < a.random {
		return outages[a.w.rand.IntN(len(outages))], took
	}
	switch {
	case item == smallQuestion:
		return a.small, took
	case item >= 0:
		return a.bad[item], took
	}
	return Answered, took
}

func drawAdversary(t *rapid.T, servers []string) *adversary {
	runs := rapid.IntRange(1, 3).Draw(t, "runs")
	items := runs * rapid.IntRange(1, 100).Draw(t, "items a run")
	w := newWorldOf(rapid.Uint64().Draw(t, "seed"), runs, items, rapid.IntRange(1, 32).Draw(t, "in flight"), servers...)
	w.natures = map[Outcome]Nature{}
	for _, o := range outages {
		w.natures[o] = Outage
	}
	a := &adversary{w: w, bad: make([]Outcome, items),
		random: rapid.SampledFrom([]float64{0, 0, 0.05, 0.3}).Draw(t, "random"),
		small:  rapid.SampledFrom([]Outcome{Answered, "status_404"}).Draw(t, "small question")}
	share := rapid.SampledFrom([]float64{0, 0.05, 0.5, 1}).Draw(t, "bad items")
	outcomes := slices.Concat([]Outcome{named}, settings)
	if a.small == Answered { // else nothing tells one that is throttled for good from an outage
		outcomes = append(outcomes, "status_429")
	}
	how := rapid.SliceOfN(rapid.SampledFrom(outcomes), 1, 2).Draw(t, "bad")
	for i := range a.bad {
		if w.rand.Float64() < share {
			a.bad[i] = how[w.rand.IntN(len(how))]
		}
	}
	for n := range rapid.IntRange(0, 3).Draw(t, "episodes") {
		e := episode{run: rapid.IntRange(-1, runs-1).Draw(t, fmt.Sprint("run of ", n)),
			begin:   time.Duration(rapid.IntRange(0, 5000).Draw(t, fmt.Sprint("begin of ", n))) * time.Millisecond,
			outcome: rapid.SampledFrom(slices.Concat(settings, outages)).Draw(t, fmt.Sprint("outcome of ", n))}
		e.server = rapid.SampledFrom(append([]string{""}, servers...)).Draw(t, fmt.Sprint("server of ", n))
		e.end = e.begin + time.Duration(rapid.IntRange(1, 600_000).Draw(t, fmt.Sprint("length of ", n)))*time.Millisecond
		if w.natures[e.outcome] == Setting && rapid.Bool().Draw(t, fmt.Sprint("for good ", n)) {
			e.end = 0
		}
		a.episodes = append(a.episodes, e)
	}
	for n := range rapid.IntRange(0, 2).Draw(t, "restarts") {
		at := time.Duration(rapid.IntRange(0, 90_000).Draw(t, fmt.Sprint("time of ", n))) * time.Millisecond
		w.queue = append(w.queue, event{w.start.Add(at), anyLife, w.restart})
	}
	heap.Init(&w.queue)
	w.documented = rapid.Bool().Draw(t, "documented")
	w.outcome, w.resumes = a.outcome, time.Minute
	return a
}

// Whatever fails, and for how long: a run that is resumed after each pause ends, after a
// few pauses. Unless a user has resumed it, none of its good items is charged, but for one
// of 100,000 where requests fail at random.
func TestEveryRunEndsAndGoodItemsAreNotCharged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawAdversary(t, two[:rapid.IntRange(1, 2).Draw(t, "servers")])
		w := a.w
		took := w.run(24 * time.Hour)
		left, charged := 0, make([]int, len(w.runs))
		for i := range a.bad {
			run := i % len(w.runs)
			if !w.answered[i] && !w.charged[i] {
				left++
			}
			if w.charged[i] && a.bad[i] == Answered && w.runs[run].pauses == 0 {
				charged[run]++
			}
		}
		if left > 0 {
			t.Fatalf("%d of %d items have no end after %s and %d requests", left, len(a.bad), took, w.requests())
		}
		for n, r := range w.runs {
			if r.pauses > 20 {
				t.Errorf("run %d was paused %d times", n, r.pauses)
			}
			most := 0
			if a.random > 0 {
				most = 1
			}
			if charged[n] > most {
				t.Errorf("%d good items of run %d were charged", charged[n], n)
			}
		}
	})
}
