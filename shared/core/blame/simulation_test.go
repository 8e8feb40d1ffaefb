package blame

import (
	"container/heap"
	"math/rand/v2"
	"strings"
	"time"
)

// world is a worker with a ledger, some servers and the items of runs, in simulated
// time. It does what an executor does.
type world struct {
	rand     *rand.Rand
	ledger   *Ledger
	names    []string
	now      time.Time
	start    time.Time
	queue    events
	inFlight int // requests at once
	least    int // tries before an item is charged

	// outcome says how a request of an item ends at a time, and how long it takes. A
	// negative item is a comparison: -1 repeats an answered request of the first run, -2
	// one of the second, and so on. A small question is smallQuestion.
	outcome func(server string, item int, at time.Duration) (Outcome, time.Duration)
	nature  Nature
	natures map[Outcome]Nature // of outcomes that have another one
	// resumes is how long after a refusal a run is resumed; 0: never, and the world ends.
	resumes time.Duration
	// documented says that what a worker claims tells of answers before its restart.
	documented bool

	life int // counts the restarts of the worker
	runs []*simulatedRun

	waiting  []*item
	blocked  []*item // until the ledger changes, or a time
	running  int
	asked    []int // requests by item
	answered []bool
	charged  []bool
	compared int
	failures int // requests of items that failed
	refused  *Refusal
	alarm    time.Time
	next     int // the server of the next request
	newest   int // the run of the newest request that was answered first; -1 before any
}

const smallQuestion = -100

// named is the outcome of an item that is at fault itself, as its server says.
const named Outcome = "named"

// hangs is the outcome of a request that ends without telling anything.
const hangs Outcome = "hangs"

type simulatedRun struct {
	name    string
	number  int
	control uint64
	earlier Outcome // of the last refusal
	answers int     // since the run began or was resumed
	good    bool    // the worker knows a request of it that was answered
	paused  bool
	pauses  int
	parked  []*item
}

type item struct {
	run      *simulatedRun
	index    int
	tries    int
	evidence Evidence
}

// event is something that happens at a time.
type event struct {
	at   time.Time
	life int // of the worker that waits for it; anyLife for all
	do   func()
}

const anyLife = -1

type events []event

func (q events) Len() int           { return len(q) }
func (q events) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q events) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)        { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func newWorld(seed uint64, items, inFlight int, servers ...string) *world {
	return newWorldOf(seed, 1, items, inFlight, servers...)
}

// newWorldOf returns a world with several runs. Item i is one of run i modulo runs.
func newWorldOf(seed uint64, runs, items, inFlight int, servers ...string) *world {
	start := time.Unix(0, 0)
	w := &world{rand: rand.New(rand.NewPCG(seed, 1)), ledger: New(servers...), names: servers, now: start, start: start,
		inFlight: inFlight, least: 3, nature: Setting, newest: -1,
		asked: make([]int, items), answered: make([]bool, items), charged: make([]bool, items)}
	for n := range runs {
		w.runs = append(w.runs, &simulatedRun{name: "run" + strings.Repeat("+", n), number: n, control: 1})
	}
	for i := range items {
		w.waiting = append(w.waiting, &item{run: w.runs[i%runs], index: i})
	}
	return w
}

func (it *item) id() Item { return Item{it.run.name, uint64(it.index)} }

func (w *world) after(d time.Duration, do func()) {
	heap.Push(&w.queue, event{w.now.Add(d), w.life, do})
}

// restart replaces the worker by one that knows nothing but what documents say.
func (w *world) restart() {
	w.life++
	w.alarm = time.Time{}
	w.ledger, w.blocked, w.waiting, w.running, w.newest = New(w.names...), nil, nil, 0, -1
	for _, r := range w.runs {
		w.ledger.Begin(r.name, r.control, r.earlier, w.documented && r.answers > 0)
		r.good, r.parked = w.documented && r.answers > 0, nil
	}
	for i := range w.asked {
		r := w.runs[i%len(w.runs)]
		switch {
		case w.answered[i] || w.charged[i]:
		case r.paused:
			r.parked = append(r.parked, &item{run: r, index: i})
		default:
			w.waiting = append(w.waiting, &item{run: r, index: i})
		}
	}
	w.schedule()
}

// run lets the run go on until every item has its end, the run is refused or the time
// is over. It returns the time that it took.
func (w *world) run(limit time.Duration) time.Duration {
	for _, r := range w.runs {
		w.ledger.Begin(r.name, 1, Answered, false)
	}
	w.schedule()
	for len(w.queue) > 0 && w.refused == nil && w.now.Sub(w.start) < limit {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		if e.life != w.life && e.life != anyLife {
			continue
		}
		e.do()
		again := w.blocked
		w.blocked = nil
		for _, it := range again {
			w.admit(it)
		}
	}
	return w.now.Sub(w.start)
}

// schedule begins items while slots are free.
func (w *world) schedule() {
	for w.running < w.inFlight && len(w.waiting) > 0 {
		it := w.waiting[0]
		w.waiting = w.waiting[1:]
		w.running++
		w.admit(it)
	}
}

func (w *world) admit(it *item) {
	a := w.ledger.Admit(it.id(), &it.evidence, it.tries == 0, w.now)
	if a.Compare != "" {
		w.compare(a.Compare, it.run, func() {})
	}
	if a.LookUp {
		w.after(10*time.Millisecond, func() {
			it.run.good = it.run.good || it.run.answers > 0
			w.ledger.LookedUp(it.run.name, it.run.answers > 0)
		})
	}
	switch {
	case a.Refused != nil:
		w.pause(it, a.Refused)
	case a.Go:
		w.ask(it, a)
	default:
		w.blocked = append(w.blocked, it)
		if a.Until.After(w.now) && (!w.alarm.After(w.now) || a.Until.Before(w.alarm)) {
			w.alarm = a.Until
			w.after(a.Until.Sub(w.now), func() {})
		}
	}
}

// pause ends the work on an item whose run is refused. If the run is resumed, its items
// are asked anew.
func (w *world) pause(it *item, r *Refusal) {
	if w.resumes == 0 {
		w.refused = r
		return
	}
	if !it.run.paused {
		it.run.paused = true
		it.run.pauses++
		heap.Push(&w.queue, event{w.now.Add(w.resumes), anyLife, func() {
			it.run.paused, it.run.answers, it.run.earlier = false, 0, r.Outcome
			it.run.control++
			w.ledger.Begin(it.run.name, it.run.control, r.Outcome, false)
			w.waiting = append(w.waiting, it.run.parked...)
			it.run.parked = nil
			w.schedule()
		}})
	}
	it.run.parked = append(it.run.parked, &item{run: it.run, index: it.index})
	w.finish()
}

func (w *world) ask(it *item, a Admission) {
	names := a.Servers
	if names == nil {
		names = w.names
	}
	w.next++
	server := names[w.next%len(names)]
	it.tries++
	w.asked[it.index]++
	o, took := w.outcome(server, it.index, w.now.Sub(w.start))
	w.after(took, func() {
		switch o {
		case Answered:
			w.ledger.Answered(a.Request, server, w.now)
			w.answered[it.index] = true
			it.run.answers++
			if !it.run.good {
				it.run.good, w.newest = true, it.run.number
			}
			w.finish()
			return
		case named:
			w.ledger.Works(a.Request, server)
			w.charged[it.index] = true
			w.finish()
			return
		case hangs:
			w.ledger.Abandon(a.Request, w.now)
			w.after(Outage.Backoff(it.tries), func() { w.admit(it) })
			return
		}
		w.failures++
		f := w.failure(o)
		if w.ledger.Failed(a.Request, server, f, w.now) {
			w.charged[it.index] = true
			w.finish()
			return
		}
		w.ledger.Add(it.id(), &it.evidence, server, a.Request, f)
		w.after(f.Nature.Backoff(it.tries), func() { w.weigh(it, server) })
	})
}

func (w *world) failure(o Outcome) Failure {
	f := Failure{Outcome: o, Nature: w.nature, Words: "no"}
	if n, ok := w.natures[o]; ok {
		f.Nature = n
	}
	return f
}

func (w *world) weigh(it *item, server string) {
	j := w.ledger.Weigh(it.id(), &it.evidence, w.least)
	switch {
	case j.Charge:
		w.charged[it.index] = true
		w.finish()
	case j.Compare:
		w.compare(server, it.run, func() { w.weigh(it, server) })
	default:
		w.admit(it)
	}
}

// compare repeats a request of the run that was answered, or else of another run.
func (w *world) compare(server string, run *simulatedRun, then func()) {
	w.compared++
	r := w.ledger.Compare(server, run.name, w.now)
	question := smallQuestion
	switch {
	case run.good:
		question = -1 - run.number
	case w.newest >= 0:
		question = -1 - w.newest
	}
	o, took := w.outcome(server, question, w.now.Sub(w.start))
	w.after(took, func() {
		switch o {
		case Answered:
			w.ledger.Answered(r, server, w.now)
		case hangs:
			w.ledger.Abandon(r, w.now)
		default:
			w.ledger.Failed(r, server, w.failure(o), w.now)
		}
		then()
	})
}

func (w *world) finish() {
	w.running--
	w.schedule()
}

// count returns how many items were answered and charged.
func (w *world) count() (answered, charged int) {
	for i := range w.asked {
		if w.answered[i] {
			answered++
		}
		if w.charged[i] {
			charged++
		}
	}
	return answered, charged
}

// requests returns how many requests were made, comparisons included.
func (w *world) requests() int {
	n := w.compared
	for _, asked := range w.asked {
		n += asked
	}
	return n
}
