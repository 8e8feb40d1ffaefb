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
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// Whatever is lost, doubled, reordered or crashes, the invariants hold at
// every step; and once the faults are over every run ends in few steps (I8).
func TestStepInAHostileWorld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t)
		for range rapid.IntRange(1, 60).Draw(t, "acts") {
			w.act()
		}
		w.settle()
	})
}

// act does one drawn thing.
func (w *twin) act() {
	t := w.t
	switch rapid.SampledFrom([]string{"step", "step", "work", "work", "work", "plan", "control", "lose", "double", "tick", "reclaim", "noise"}).Draw(t, "act") {
	case "step":
		w.coordinate(true)
	case "work":
		for range min(len(w.work), rapid.IntRange(1, 40).Draw(t, "messages")) {
			fate := rapid.SampledFrom([]string{"answer", "answer", "release", "die", "hold"}).Draw(t, "fate")
			w.worker(rapid.IntRange(0, len(w.work)-1).Draw(t, "which"), fate)
		}
	case "plan":
		if !w.world.Complete {
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
		w.world.Unacknowledged = rapid.IntRange(0, 1).Draw(t, "unacknowledged")
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
		w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{1, 700, 5_000, 11_000, 130_000}).Draw(t, "ms")) * time.Millisecond)
		w.world.Pool = rapid.SampledFrom([]int{0, 3, 100}).Draw(t, "pool")
	case "reclaim":
		w.reclaim()
	case "noise": // events that nobody should send
		kind := rapid.SampledFrom([]EventKind{ShardLost, ShardLost, ShardReleased, ShardReleased, Finalized, InputMissing, InputChanged, "news"}).Draw(t, "kind")
		w.tell(Event{Kind: kind, Shard: rapid.IntRange(-1, 400).Draw(t, "shard"), Generation: rapid.IntRange(0, 3).Draw(t, "generation"), Why: strings.Repeat("ü", 400)})
	}
}

// settle ends the faults: everything is delivered, somebody resumes what is
// paused, reclaim looks. The run must end.
func (w *twin) settle() {
	w.world.Complete, w.world.PlanProblem, w.world.Unacknowledged = true, "", 0
	w.desire(false, "")
	for n, d := range w.docs { // held forever is over, too
		if d.state == shard.Running {
			w.docs[n].dead = true
		}
	}
	const rounds = 64
	for range rounds {
		if w.load().Phase.Ended() {
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

// The document stays within 16 KiB while shards come back in the worst order,
// are lost at different times and in different generations, with numbers in
// the millions.
func TestStateStaysSmall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pool, release int }{{0, 2}, {0, 30}, {256, 3}, {256, 1000}, {800, 10}} {
		s := New(testRun)
		s.Phase, s.NextShard, s.Shards = Running, 5_000_000, 5_000_000
		s.Done.Set.AddRange(interval.Range{Lo: 0, Hi: s.NextShard})
		w := Observed{Shards: 9_000_000, Pool: c.pool}
		dice := rand.New(rand.NewPCG(uint64(c.pool), uint64(c.release)))
		now := epoch
		for range 100 {
			now = now.Add(time.Duration(dice.IntN(3000)) * time.Millisecond)
			if dice.IntN(50) == 0 {
				w.Sequence += 2 // a pause came and went
			}
			s, _ = Step(s, w, Rules{}, everyOther(s, dice, c.release), now)
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if len(b) > 16<<10 {
				t.Fatalf("pool %d, one of %d released: the state grew to %d bytes", c.pool, c.release, len(b))
			}
		}
	}
}

// everyOther answers many of the even shards in flight, and releases some of
// all others.
func everyOther(s State, dice *rand.Rand, release int) (batch []Event) {
	for _, c := range s.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			switch {
			case n%2 == 0 && dice.IntN(3) == 0:
				batch = append(batch, Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 256, PromptTokens: 1 << 20}})
			case dice.IntN(release) == 0:
				batch = append(batch, Event{Kind: ShardReleased, Shard: n})
			}
		}
	}
	return batch
}

// What others say is kept short and valid, so that it is read back as written.
func TestMessagesAreClipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"short", "gone", "gone"},
		{"long", strings.Repeat("a", 1000), strings.Repeat("a", 256) + "…"},
		{"cut within a rune", "a" + strings.Repeat("ü", 500), "a" + strings.Repeat("ü", 127) + "…"},
		{"invalid bytes", "a\xffb", "a\uFFFDb"},
	} {
		s, _ := Step(New(testRun), Observed{}, Rules{}, []Event{{Kind: InputMissing, Why: c.in}}, epoch)
		if s.Message != c.want || s.Effects[0].Why != c.want {
			t.Errorf("%s: message %q, effect %q", c.name, s.Message, s.Effects[0].Why)
		}
	}
}

// Reasons have one terminal phase and one class of the items left without an
// answer.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason Reason
		failed int
		end    Phase
		class  fault.Class
	}{
		{ReasonDone, 0, Completed, fault.CanceledItem},
		{ReasonDone, 1, CompletedWithErrors, fault.CanceledItem},
		{ReasonStopped, 0, Stopped, fault.CanceledItem},
		{ReasonExpired, 1, Expired, fault.Expired},
		{ReasonBudget, 1, OverBudget, fault.Budget},
		{ReasonFailFast, 1, Failed, fault.CanceledItem},
		{ReasonInputChanged, 1, Failed, fault.InputChanged},
		{ReasonInputBroken, 1, Failed, fault.CanceledItem},
	} {
		if end, class := c.reason.Phase(c.failed), c.reason.Class(); end != c.end || class != c.class || !end.Ended() || end.Succeeded() != (end == Completed) {
			t.Errorf("%s: ends as %s with %s items", c.reason, end, class)
		}
	}
}

// The field names are the document's format.
func TestStateJSON(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	b, err := json.Marshal(s)
	if want := `{"schema":1,"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","phase":"planning","shards":0,"items":0,"complete":false,"next":0,` +
		`"in_flight":[],"done":{"set":[]},"counts":{"ok":0},"steps":0,"saved_at":"0001-01-01T00:00:00Z"}`; err != nil || string(b) != want {
		t.Errorf("new:\ngot  %s (%v)\nwant %s", b, err, want)
	}
	s.Phase, s.Reason, s.Message, s.Warning = Ending, ReasonStopped, "m", "w"
	s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier, s.FailedStreak = 9, 90, true, 5, 5, 2
	s.InFlight.MarkSent(interval.Range{Lo: 1, Hi: 3}, 4, epoch)
	s.Done.Set.AddRange(interval.Range{Lo: 3, Hi: 5})
	s.Counts, s.Control, s.Steps = shard.Counts{OK: 20}, 6, 7
	s.StopRequestedAt, s.GraceUntil, s.Deadline, s.SavedAt, s.StartedAt, s.EndedAt = epoch, epoch, epoch, epoch, epoch, epoch
	s.Effects = Effects{{Kind: SetEnd, Why: "stopped"}, {Kind: Send, Range: &interval.Range{Lo: 1, Hi: 2}, Generation: 4}, {Kind: Send, Range: &interval.Range{Lo: 4, Hi: 5}, Generation: 4}}
	at := `"2025-01-01T00:00:00Z"`
	b, err = json.Marshal(s)
	if want := `{"schema":1,"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","phase":"ending","reason":"stopped","message":"m","warning":"w",` +
		`"shards":9,"items":90,"complete":true,"next":5,"frozen":5,"in_flight":[[4,1735689600000,1,2]],"done":{"set":[3,2]},` +
		`"counts":{"ok":20},"streak":2,"control":6,"grace_until":` + at + `,"stop_at":` + at + `,"deadline":` + at + `,"steps":7,"saved_at":` + at +
		`,"started_at":` + at + `,"ended_at":` + at + `,"effects":[{"act":"end","why":"stopped"},{"act":"send","ranges":[1,1,2,1],"generation":4}]}`; err != nil || string(b) != want {
		t.Errorf("full:\ngot  %s (%v)\nwant %s", b, err, want)
	}
}

// Effects come back from JSON as they were, whatever neighbours they have.
func TestEffectsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		es := Effects{}
		for range rapid.IntRange(0, 12).Draw(t, "effects") {
			e := Effect{Kind: rapid.SampledFrom([]EffectKind{Send, Seal, Finalize}).Draw(t, "act"), Generation: rapid.IntRange(0, 1).Draw(t, "generation")}
			if e.Kind != Finalize {
				lo := rapid.IntRange(0, 20).Draw(t, "lo")
				e.Range = &interval.Range{Lo: lo, Hi: lo + rapid.IntRange(1, 5).Draw(t, "len")}
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
			t.Fatalf("%s came back otherwise", b)
		}
	})
}
