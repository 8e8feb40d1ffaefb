package run

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

// twin is a small model of the system around one run: shard documents, workers, a
// queue and a coordinator that may crash anywhere. It loses, repeats and reorders
// messages and events as drawn.
type twin struct {
	t     *rapid.T
	saved []byte // the coordinator document
	fresh bool   // the effects of saved were performed
	docs  map[int]*doc
	work  []message
	news  []Event
	world Observed
	rules Rules
	now   time.Time
	final bool // finalize was requested
	steps int
	// attributes are those of each shard. A step may look for those that it needs in
	// rounds rounds. recorded are the variants whose pruning is recorded.
	attributes func(n int) schedule.Attributes
	rounds     int
	recorded   map[uint32]bool
	// A run that prunes has the places of its looks, and what they have pruned so far.
	places []int
	pruned map[uint32]int
}

// doc is a shard's document. Its counts follow from its number, so that
// checkCounts can add them up independently.
type doc struct {
	state  shard.State
	dead   bool // its holder is dead
	sealed bool
}

type message struct{ n, generation int }

func newTwin(t *rapid.T) *twin {
	w := &twin{t: t, now: epoch.Add(123456 * time.Nanosecond), docs: map[int]*doc{}, fresh: true,
		recorded: map[uint32]bool{}, attributes: drawAttributes(t),
		rounds: rapid.IntRange(1, 3).Draw(t, "rounds"),
		rules: Rules{
			Grace:    10 * time.Second,
			Settle:   rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "settle"),
			FailFast: rapid.IntRange(0, 9).Draw(t, "failfast") == 0,
			Budget: cost.Spend{Tokens: int64(rapid.SampledFrom([]int{0, 0, 0, 40}).Draw(t, "tokens")),
				MicroUSD: int64(rapid.SampledFrom([]int{0, 0, 0, 120}).Draw(t, "micro-dollars"))},
			// Every 17th shard fails, and so does every sealed one.
			FailedShards: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "failed shards"),
			Constraints:  drawConstraints(t),
		}}
	if rapid.IntRange(0, 4).Draw(t, "deadline") == 0 {
		w.rules.Deadline = epoch.Add(5 * time.Minute)
	}
	if w.chance(3, "looks") {
		w.drawLooks()
	}
	w.save(New(testRun))
	return w
}

func countsOf(n int, sealed bool) shard.Counts {
	if sealed || n%17 == 16 {
		return shard.Counts{Failed: 1, ByClass: map[string]int{"engine": 1}}
	}
	return shard.Counts{OK: 1, CompletionTokens: 1, TokenNanoUSD: 3000}
}

func (w *twin) save(s State) {
	b, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(b) > 16<<10 {
		w.t.Fatalf("the state has %d bytes", len(b))
	}
	w.saved = b
}

func (w *twin) load() State {
	var s State
	if err := json.Unmarshal(w.saved, &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// chance draws true with a probability of 1/n.
func (w *twin) chance(n int, what string) bool { return rapid.IntRange(1, n).Draw(w.t, what) == 1 }

// coordinate performs one step. With faults, it may crash, repeat effects, and
// keep or reorder events.
func (w *twin) coordinate(faults bool) {
	s := w.load()
	if !w.fresh {
		if faults && w.chance(2, "late") {
			w.now = w.now.Add(20 * time.Second)
		}
		w.perform(s.Effects)
		w.fresh = true
	}
	batch := append(w.newlyPruned(s), w.news...)
	if faults {
		batch = rapid.Permutation(batch).Draw(w.t, "order")
	}
	before := string(w.saved)
	next, _ := Step(s, w.observed(s, batch), w.rules, batch, w.now)
	w.check(s, next, before, batch)
	if faults && w.chance(10, "crash before save") {
		return
	}
	w.save(next)
	w.steps++
	if !faults || !w.chance(10, "keep events") {
		w.news = nil
	}
	if faults && w.chance(10, "crash before perform") {
		w.fresh = false
		return
	}
	w.perform(next.Effects)
	if faults && w.chance(10, "perform again") {
		w.perform(next.Effects)
	}
}

func (w *twin) perform(es Effects) {
	for _, e := range es {
		switch e.Kind {
		case Send:
			for n := e.Range.Lo; n < e.Range.Hi; n++ {
				w.work = append(w.work, message{n, e.Generation})
			}
		case SetPause:
			w.desire(true, "")
		case SetEnd:
			w.desire(false, Reason(e.Why))
		case Seal:
			for n := e.Range.Lo; n < e.Range.Hi; n++ {
				d := w.doc(n)
				if d.state != shard.Done {
					d.state, d.sealed = shard.Done, true
				}
				w.tell(Event{Kind: ShardDone, Shard: n, Counts: countsOf(n, d.sealed)})
			}
		case Finalize:
			w.final = true
		case RecordPruned:
			w.recorded[e.Pruned.Variant] = true
			w.tell(Event{Kind: Reevaluate})
		case Replan:
			w.look()
		case Continue:
			w.tell(Event{Kind: Reevaluate})
		}
	}
}

func (w *twin) doc(n int) *doc {
	if w.docs[n] == nil {
		w.docs[n] = &doc{state: shard.Pending}
	}
	return w.docs[n]
}

func (w *twin) tell(e Event) { w.news = append(w.news, e) }

func (w *twin) desire(pause bool, end Reason) {
	if w.world.DesiredEnd != "" || end == "" && w.world.DesiredPause == pause {
		return
	}
	w.world.Sequence++
	w.world.DesiredPause, w.world.DesiredEnd, w.world.ControlAt = pause, end, w.now
	w.world.Unacknowledged = rapid.IntRange(0, 1).Draw(w.t, "unacknowledged")
}

// worker lets a worker receive message i. If it may claim the shard, the outcome
// is "answer", "release", "die" or "hold".
func (w *twin) worker(i int, outcome string) {
	m := w.work[i]
	w.work = slices.Delete(w.work, i, i+1)
	d := w.doc(m.n)
	switch {
	case d.state == shard.Done:
		w.tell(Event{Kind: ShardDone, Shard: m.n, Counts: countsOf(m.n, d.sealed)})
		return
	case w.world.DesiredPause || w.world.DesiredEnd != "", d.state == shard.Running && !d.dead:
		return // acknowledged without a claim
	}
	d.state, d.dead = shard.Running, false
	switch outcome {
	case "answer":
		d.state = shard.Done
		w.tell(Event{Kind: ShardDone, Shard: m.n, Counts: countsOf(m.n, false)})
	case "release":
		d.state = shard.Pending
		w.tell(Event{Kind: ShardReleased, Shard: m.n})
	case "die":
		d.dead = true
	}
}

// reclaim reports the state of the shards in chunks that are due.
func (w *twin) reclaim() {
	s := w.load()
	for _, c := range s.InFlight.Chunks {
		if !c.Due(w.now) {
			continue
		}
		for n := c.Lo; n < c.Hi; n++ {
			switch d := w.doc(n); {
			case d.state == shard.Done:
				w.tell(Event{Kind: ShardDone, Shard: n, Counts: countsOf(n, d.sealed)})
			case d.state == shard.Pending, d.dead:
				w.tell(Event{Kind: ShardLost, Shard: n, Generation: c.Generation})
			}
		}
	}
	w.tell(Event{Kind: Wakeup})
}

// check checks the invariants of one step.
func (w *twin) check(was, now State, before string, batch []Event) {
	t := w.t
	if b, _ := json.Marshal(was); string(b) != before {
		t.Fatalf("Step changed its argument:\n%s\n%s", before, b)
	}
	sends := 0
	for _, e := range now.Effects {
		if e.Kind == Send {
			sends += e.Range.Len()
		}
	}
	if sends > 0 && !now.Phase.dispatches() {
		t.Fatalf("a run in phase %s sends %d shards", now.Phase, sends)
	}
	if now.Phase.Ended() && len(now.Effects) > 0 {
		t.Fatalf("an ended run (%s) has effects %v", now.Phase, now.Effects)
	}
	if top := max(was.InFlight.Len(), schedule.Window(w.world.Pool, 0, 0)); now.InFlight.Len() > top {
		t.Fatalf("%d shards in flight, %d allowed", now.InFlight.Len(), top)
	}
	limit := w.rules.FailedShards
	if limit > 0 && now.FailedStreak >= limit && now.Phase.dispatches() {
		t.Fatalf("the phase is %s after %d failed shards in a row; the limit is %d", now.Phase, now.FailedStreak, limit)
	}
	if was.Reason != "" && (now.Reason != was.Reason || now.FrozenFrontier != was.FrozenFrontier) {
		t.Fatalf("end %s at %d became %s at %d", was.Reason, was.FrozenFrontier, now.Reason, now.FrozenFrontier)
	}
	if !slices.Contains(arrows[was.Phase], now.Phase) && was.Phase != now.Phase {
		t.Fatalf("no arrow from %s to %s", was.Phase, now.Phase)
	}
	for _, r := range was.Done.Set.Ranges() {
		if len(now.Done.Set.Missing(r)) > 0 {
			t.Fatalf("done %v lost some of %v", now.Done.Set.Ranges(), r)
		}
	}
	if open := interval.Of(now.Open()...); now.InFlight.Len() != open.Len() {
		t.Fatalf("in flight %v, open %v", now.InFlight.Chunks, open.Ranges())
	}
	w.checkGrace(was, now)
	w.checkConstraints(was, now)
	w.checkCounts(now)
	w.checkLoad(now, batch)
}

// checkGrace checks that a step gives up no holder before the holder's grace is over,
// which it counts from when control says that the run pauses or ends.
func (w *twin) checkGrace(was, now State) {
	seals := slices.ContainsFunc(now.Effects, func(e Effect) bool { return e.Kind == Seal })
	interrupts := now.Phase == Interrupted && was.Phase != Interrupted
	if w.world.Unacknowledged == 0 || !seals && !interrupts {
		return
	}
	told := w.world.ControlAt.Truncate(time.Millisecond) // the precision of a saved state
	if over := told.Add(w.rules.Grace + w.rules.Settle); w.now.Before(over) {
		w.t.Fatalf("the run is %s, with %v, %s before a holder's grace is over", now.Phase, now.Effects, over.Sub(w.now))
	}
}

// checkCounts compares the state's counts with those of all Done documents.
func (w *twin) checkCounts(s State) {
	if s.Phase.Ended() {
		return // the counts of the output files
	}
	var sum decider
	for _, r := range s.Done.Set.Ranges() {
		for n := r.Lo; n < r.Hi; n++ {
			if w.docs[n] == nil && w.recorded[w.attributes(n).Variant] && s.Pruned.Has(w.attributes(n).Variant, n) {
				sum.countPruned(w.attributes(n))
				continue
			}
			if w.doc(n).state != shard.Done {
				w.t.Fatalf("shard %d counts as done and is %s", n, w.doc(n).state)
			}
			sum.count(Event{Counts: countsOf(n, w.doc(n).sealed)})
		}
	}
	if s.Counts.OK != sum.Counts.OK || s.Counts.Failed != sum.Counts.Failed ||
		!maps.Equal(s.Counts.ByClass, sum.Counts.ByClass) {
		w.t.Fatalf("counts %+v, documents say %+v", s.Counts, sum.Counts)
	}
}

// checkLoad compares the next step from the state in memory with the next step
// from the saved document.
func (w *twin) checkLoad(s State, batch []Event) {
	b, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	var loaded State
	if err := json.Unmarshal(b, &loaded); err != nil {
		w.t.Fatalf("%v in %s", err, b)
	}
	if !reflect.DeepEqual(s.InFlight, loaded.InFlight) && s.InFlight.Len() > 0 ||
		!s.SavedAt.Equal(loaded.SavedAt) || !s.GraceUntil.Equal(loaded.GraceUntil) {
		w.t.Fatalf("saved %v\nloaded %v", s, loaded)
	}
	later := w.now.Add(1234567 * time.Nanosecond)
	fromMemory, _ := Step(s, w.observed(s, batch), w.rules, batch, later)
	fromDocument, _ := Step(loaded, w.observed(loaded, batch), w.rules, batch, later)
	x, _ := json.Marshal(fromMemory)
	y, _ := json.Marshal(fromDocument)
	if string(x) != string(y) {
		w.t.Fatalf("from memory:\n%s\nfrom the document:\n%s", x, y)
	}
}

// arrows are those of the diagram in the package comment, and their combinations
// that one step may take at once.
var arrows = map[Phase][]Phase{
	Planning:    {Running, Pausing, Paused, Interrupted, Ending, Finalizing},
	Running:     {Pausing, Paused, Interrupted, Ending, Finalizing},
	Pausing:     {Paused, Interrupted, Planning, Running, Ending, Finalizing},
	Paused:      {Pausing, Interrupted, Planning, Running, Ending, Finalizing},
	Interrupted: {Pausing, Paused, Planning, Running, Ending, Finalizing},
	Ending:      {Finalizing},
	Finalizing:  {Completed, CompletedWithErrors, Stopped, Expired, OverBudget, Failed},
}
