package blame

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// world is a worker with a ledger, some servers and the items of one run, in simulated
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
	// negative item is a comparison.
	outcome func(server string, item int, at time.Duration) (Outcome, time.Duration)
	nature  Nature

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
}

type item struct {
	index    int
	tries    int
	evidence Evidence
}

// event is something that happens at a time.
type event struct {
	at time.Time
	do func()
}

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
	start := time.Unix(0, 0)
	w := &world{rand: rand.New(rand.NewPCG(seed, 1)), ledger: New(servers...), names: servers, now: start, start: start,
		inFlight: inFlight, least: 3, nature: Setting,
		asked: make([]int, items), answered: make([]bool, items), charged: make([]bool, items)}
	for i := range items {
		w.waiting = append(w.waiting, &item{index: i})
	}
	return w
}

func (w *world) after(d time.Duration, do func()) { heap.Push(&w.queue, event{w.now.Add(d), do}) }

// run lets the run go on until every item has its end, the run is refused or the time
// is over. It returns the time that it took.
func (w *world) run(limit time.Duration) time.Duration {
	w.ledger.Begin("run", 1, Answered)
	w.schedule()
	for len(w.queue) > 0 && w.refused == nil && w.now.Sub(w.start) < limit {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
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
	a := w.ledger.Admit(Item{"run", uint64(it.index)}, it.tries == 0, w.now)
	if a.Compare != "" {
		w.compare(a.Compare, func() {})
	}
	switch {
	case a.Refused != nil:
		w.refused = a.Refused
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
		if o == Answered {
			w.ledger.Answered(a.Request, server, w.now)
			w.answered[it.index] = true
			w.finish()
			return
		}
		w.failures++
		f := Failure{Outcome: o, Nature: w.nature, Words: "no"}
		if w.ledger.Failed(a.Request, server, f, w.now) {
			w.charged[it.index] = true
			w.finish()
			return
		}
		w.ledger.Add(Item{"run", uint64(it.index)}, &it.evidence, server, a.Request, f)
		w.after(w.nature.Backoff(it.tries), func() { w.weigh(it, server) })
	})
}

func (w *world) weigh(it *item, server string) {
	j := w.ledger.Weigh(Item{"run", uint64(it.index)}, &it.evidence, w.least)
	switch {
	case j.Charge:
		w.charged[it.index] = true
		w.finish()
	case j.Compare:
		w.compare(server, func() { w.weigh(it, server) })
	default:
		w.admit(it)
	}
}

func (w *world) compare(server string, then func()) {
	w.compared++
	r := w.ledger.Compare(server, w.now)
	o, took := w.outcome(server, -1, w.now.Sub(w.start))
	w.after(took, func() {
		if o == Answered {
			w.ledger.Answered(r, server, w.now)
		} else {
			w.ledger.Failed(r, server, Failure{Outcome: o, Nature: w.nature, Words: "no"}, w.now)
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
