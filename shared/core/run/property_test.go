package run

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// TestInvariantsHoldUnderFaults loses, repeats and reorders events and crashes the
// coordinator. The invariants hold at every step, and after the last fault every
// run ends in a bounded number of steps (I8).
func TestInvariantsHoldUnderFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t)
		for range rapid.IntRange(1, 60).Draw(t, "acts") {
			w.act()
		}
		w.settle()
	})
}

// act performs one drawn action.
func (w *twin) act() {
	t := w.t
	acts := []string{"step", "step", "work", "work", "work", "plan", "control", "lose", "double", "tick", "reclaim",
		"noise", "prune"}
	switch rapid.SampledFrom(acts).Draw(t, "act") {
	case "step":
		w.coordinate(true)
	case "work":
		for range min(len(w.work), rapid.IntRange(1, 40).Draw(t, "messages")) {
			outcome := rapid.SampledFrom([]string{"answer", "answer", "release", "die", "hold"}).Draw(t, "fate")
			w.worker(rapid.IntRange(0, len(w.work)-1).Draw(t, "which"), outcome)
		}
	case "plan":
		if len(w.places) > 0 {
			w.planLooks()
		} else if !w.world.Complete {
			w.world.Shards += rapid.SampledFrom([]int{0, 1, 5, 300}).Draw(t, "planned")
			w.world.Items = uint64(w.world.Shards)
			w.world.Complete = w.chance(3, "complete")
			w.world.PlanProblem, w.world.PlanProblemEnd, w.world.PlanProblemControl = "", "", w.world.Sequence
			if !w.world.Complete && w.chance(8, "problem") {
				w.world.PlanProblem = "no such object"
				w.world.PlanProblemEnd = rapid.SampledFrom([]Reason{"", "", ReasonInputBroken}).Draw(t, "ends")
			}
		}
	case "control":
		switch rapid.SampledFrom([]string{"pause", "run", "run", "pause", "end"}).Draw(t, "control") {
		case "pause":
			w.desire(true, "")
		case "run":
			w.desire(false, "")
		case "end":
			if w.chance(4, "really") {
				w.desire(false, ReasonStopped)
			}
		}
	case "lose":
		if len(w.work) > 0 {
			w.work = w.work[rapid.IntRange(0, len(w.work)).Draw(t, "messages"):]
		}
		if len(w.news) > 0 {
			w.news = w.news[rapid.IntRange(0, len(w.news)).Draw(t, "events"):]
		}
	case "double":
		w.news = append(w.news, w.news...)
		if len(w.news) > 1000 {
			w.news = w.news[:1000]
		}
	case "tick":
		ms := rapid.SampledFrom([]int{1, 700, 5_000, 11_000, 130_000}).Draw(t, "ms")
		w.now = w.now.Add(time.Duration(ms) * time.Millisecond)
		w.world.Pool = rapid.SampledFrom([]int{0, 3, 100}).Draw(t, "pool")
	case "reclaim":
		w.reclaim()
	case "prune":
		if len(w.places) == 0 && w.chance(4, "really prune") {
			w.tell(Event{Kind: VariantPruned, Variant: uint32(rapid.IntRange(0, 4).Draw(t, "pruned")),
				Shard: rapid.SampledFrom([]int{0, 0, 1, 40, 200}).Draw(t, "pruned from"), Why: "worse"})
		}
	case "noise": // events that have no cause
		kinds := []EventKind{ShardLost, ShardLost, ShardReleased, ShardReleased, Finalized, InputMissing, InputChanged,
			"news"}
		w.tell(Event{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Shard: rapid.IntRange(-1, 400).Draw(t, "shard"),
			Generation: rapid.IntRange(0, 3).Draw(t, "generation"), Why: strings.Repeat("ü", 400)})
	}
}

// settle stops the faults. Every message is delivered, a user resumes the run
// whenever it pauses, and reclaim runs. The run must end.
func (w *twin) settle() {
	w.desire(false, "")
	w.world.Complete, w.world.PlanProblem, w.world.Unacknowledged = len(w.places) == 0 || w.world.Complete, "", 0
	if len(w.places) > 0 {
		w.planLooks()
	}
	for n, d := range w.docs { // holders that never answer die
		if d.state == shard.Running {
			w.docs[n].dead = true
		}
	}
	rounds := 64 + w.world.Shards // a chain's shards are sent one by one
	for range rounds {
		if s := w.load(); s.Phase.Ended() {
			w.checkPruned(s)
			return
		}
		for len(w.work) > 0 {
			w.worker(0, "answer")
		}
		w.reclaim()
		if w.final {
			w.tell(Event{Kind: Finalized, Counts: w.load().Counts})
		}
		w.now = w.now.Add(time.Minute)
		w.desire(false, "")
		w.coordinate(false)
	}
	w.t.Fatalf("after %d rounds: %s", rounds, w.saved)
}

// TestStateStaysSmall checks that the document stays within 16 KiB while shards
// are done in the worst order, are lost at different times and in different
// generations, and have numbers in the millions.
func TestStateStaysSmall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pool, release int }{{0, 2}, {0, 30}, {256, 3}, {256, 1000}, {800, 10}} {
		s := New(testRun)
		s.Phase, s.NextShard, s.Shards = Running, 5_000_000, 5_000_000
		s.Done.Set.AddRange(interval.Range{Lo: 0, Hi: s.NextShard})
		w := Observed{Shards: 9_000_000, Pool: c.pool}
		rng := rand.New(rand.NewPCG(uint64(c.pool), uint64(c.release)))
		now := epoch
		for range 100 {
			now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			if rng.IntN(50) == 0 {
				w.Sequence += 2 // a pause that was resumed between two steps
			}
			s, _ = Step(s, w, Rules{}, everyOther(s, rng, c.release), now)
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 16<<10 {
				t.Fatalf("pool of %d, one shard in %d released: the state has %d bytes", c.pool, c.release, len(b))
			}
		}
	}
}

// everyOther returns events by which many even shards in flight are done and some
// of the others are released.
func everyOther(s State, rng *rand.Rand, release int) (batch []Event) {
	for _, c := range s.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			switch {
			case n%2 == 0 && rng.IntN(3) == 0:
				batch = append(batch, Event{Kind: ShardDone, Shard: n,
					Counts: shard.Counts{OK: 256, PromptTokens: 1 << 20}})
			case rng.IntN(release) == 0:
				batch = append(batch, Event{Kind: ShardReleased, Shard: n})
			}
		}
	}
	return batch
}

func TestReasonsHaveOnePhaseAndOneClass(t *testing.T) {
	t.Parallel()
	const prunedItems = 5 // of the failed ones, if so many failed
	for _, c := range []struct {
		reason Reason
		failed int
		end    Phase
		class  fault.Class
	}{
		{ReasonDone, 0, Completed, fault.CanceledItem},
		{ReasonDone, 1, CompletedWithErrors, fault.CanceledItem},
		{ReasonDone, prunedItems, Completed, fault.CanceledItem},
		{ReasonDone, prunedItems + 1, CompletedWithErrors, fault.CanceledItem},
		{ReasonStopped, prunedItems, Stopped, fault.CanceledItem},
		{ReasonStopped, 0, Stopped, fault.CanceledItem},
		{ReasonExpired, 1, Expired, fault.Expired},
		{ReasonBudget, 1, OverBudget, fault.Budget},
		{ReasonFailFast, 1, Failed, fault.CanceledItem},
		{ReasonWorkerLost, 0, Failed, fault.WorkerLost},
		{ReasonInputChanged, 1, Failed, fault.InputChanged},
		{ReasonInputBroken, 1, Failed, fault.CanceledItem},
	} {
		counts := shard.Counts{Failed: c.failed}
		if c.failed >= prunedItems {
			counts.ByClass = map[string]int{string(fault.Pruned): prunedItems}
		}
		end, class := c.reason.Phase(counts, 0), c.reason.Class()
		if end != c.end || class != c.class {
			t.Errorf("%s: ends as %s, and its items as %s; want %s and %s", c.reason, end, class, c.end, c.class)
		}
		if refused := c.reason.Phase(counts, 1); (refused == CompletedWithErrors) != (c.reason == ReasonDone) {
			t.Errorf("%s: with a refused line it ends as %s", c.reason, refused)
		}
		if !end.Ended() || end.Succeeded() != (end == Completed) {
			t.Errorf("%s: ended %v, succeeded %v", end, end.Ended(), end.Succeeded())
		}
	}
}

// TestStateJSON pins the document's format.
func TestStateJSON(t *testing.T) {
	t.Parallel()
	const first = `{"schema":1,"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE",`
	s := New(testRun)
	checkStateJSON(t, s, first+`"phase":"planning","shards":0,"items":0,"complete":false,"next":0,`+
		`"in_flight":[],"done":{"set":[]},"counts":{"ok":0},"steps":0,"saved_at":"0001-01-01T00:00:00Z"}`)

	s.Phase, s.Reason, s.Message, s.Warning = Ending, ReasonStopped, "m", "w"
	s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier, s.FailedStreak = 9, 90, true, 5, 5, 2
	s.InFlight.MarkSent(4, epoch, interval.Range{Lo: 1, Hi: 3})
	s.Skipped, s.Cursor = interval.Of(interval.Range{Lo: 0, Hi: 1}), 3
	s.Pruned, s.PrunedShards = schedule.Pruned{{Variant: 7, From: 4}, {Variant: 9}}, 6
	s.Looks, s.LooksAsked = 2, 3
	s.Heads = schedule.Heads{{At: 2, Variant: 1, Chain: 9}, {At: 5, Variant: 3}}
	s.Done.Set.AddRange(interval.Range{Lo: 3, Hi: 5})
	s.Counts, s.Control, s.Steps = shard.Counts{OK: 20}, 6, 7
	s.StopRequestedAt, s.GraceUntil, s.Deadline = epoch, epoch, epoch
	s.SavedAt, s.StartedAt, s.EndedAt = epoch, epoch, epoch
	s.Effects = Effects{
		{Kind: SetEnd, Why: "stopped"},
		{Kind: Send, Range: &interval.Range{Lo: 1, Hi: 2}, Generation: 4},
		{Kind: Send, Range: &interval.Range{Lo: 4, Hi: 5}, Generation: 4},
	}
	const at = `"2025-01-01T00:00:00Z"`
	checkStateJSON(t, s, first+`"phase":"ending","reason":"stopped","message":"m","warning":"w",`+
		`"shards":9,"items":90,"complete":true,"next":5,"frozen":5,`+
		`"in_flight":[[4,1735689600000,1,2]],`+
		`"skipped":[0,1],"heads":[2,1,9,3,3,0],"cursor":3,"pruned":[7,4,9,0],"pruned_shards":6,"looks":2,"looks_asked":3,`+
		`"done":{"set":[3,2]},"counts":{"ok":20},"streak":2,"control":6,`+
		`"grace_until":`+at+`,"stop_at":`+at+`,"deadline":`+at+`,"steps":7,"saved_at":`+at+
		`,"started_at":`+at+`,"ended_at":`+at+
		`,"effects":[{"act":"end","why":"stopped"},{"act":"send","ranges":[1,1,2,1],"generation":4}]}`)
}

func checkStateJSON(t *testing.T, s State, want string) {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil || string(b) != want {
		t.Errorf("got  %s (%v)\nwant %s", b, err, want)
	}
}

// TestEffectsRoundTrip checks that effects survive JSON with any neighbours.
func TestEffectsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		es := Effects{}
		for range rapid.IntRange(0, 12).Draw(t, "effects") {
			e := Effect{Kind: rapid.SampledFrom([]EffectKind{Send, Seal, Finalize}).Draw(t, "act"),
				Generation: rapid.IntRange(0, 1).Draw(t, "generation")}
			if e.Kind != Finalize {
				lo := rapid.IntRange(0, 20).Draw(t, "lo")
				e.Range = &interval.Range{Lo: lo, Hi: lo + rapid.IntRange(1, 5).Draw(t, "len")}
			}
			if e.Kind == Finalize && rapid.Bool().Draw(t, "prunes") {
				e = Effect{Kind: RecordPruned, Why: "worse", Pruned: &schedule.PrunedVariant{
					Variant: rapid.Uint32Range(0, 9).Draw(t, "variant"), From: rapid.IntRange(0, 1e6).Draw(t, "from")}}
			}
			es = append(es, e)
		}
		b, err := json.Marshal(es)
		if err != nil {
			t.Fatal(err)
		}
		back := Effects{}
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if len(es) > 0 && !reflect.DeepEqual(es, back) {
			t.Fatalf("%s is read back as %+v, want %+v", b, back, es)
		}
	})
}
