package pipeline_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

func TestCallsFollowTheRegime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recompute, anchor bool
		regime            pipeline.Regime
		calls             int
		context           bool
	}{
		{false, false, pipeline.R1, 4, false},
		{true, false, pipeline.R0a, 5, true},
		{true, true, pipeline.R0, 5, false},
	} {
		r, err := pipeline.RegimeOf(c.recompute, c.anchor)
		if err != nil || r != c.regime || r.Calls(4) != c.calls || r.NeedsContext() != c.context {
			t.Errorf("%+v: regime %d, %d calls, context %v, %v", c, r, r.Calls(4), r.NeedsContext(), err)
		}
	}
	if _, err := pipeline.RegimeOf(false, true); !fault.Is(err, fault.Invalid) {
		t.Errorf("an anchor without recompute: %v", err)
	}
}

func TestActionsAreAClosedSet(t *testing.T) {
	t.Parallel()
	for a := range pipeline.Action(6) {
		if want := a <= pipeline.Error; a.Valid() != want {
			t.Errorf("action %d is valid: %v", a, a.Valid())
		}
		if want := a == pipeline.Shutdown || a == pipeline.Error; a.Terminal() != want {
			t.Errorf("action %v is terminal: %v", a, a.Terminal())
		}
	}
	if got := fmt.Sprint(pipeline.Noop, pipeline.Infer, pipeline.Shutdown, pipeline.Error, pipeline.Action(9)); got !=
		"NOOP INFER SHUTDOWN ERROR unknown action" {
		t.Error(got)
	}
}

func TestIDsMustRise(t *testing.T) {
	t.Parallel()
	type message struct {
		pipeline.Action
		pipeline.IDs
	}
	m := func(a pipeline.Action, call, chunk, epoch int64) message {
		return message{a, pipeline.IDs{call, chunk, epoch}}
	}
	for name, c := range map[string]struct {
		messages []message
		fails    bool // at the last one
	}{
		"chunks and a noop between": {[]message{m(1, 0, 0, 0), m(0, 1, 0, 0), m(1, 2, 1, 0)}, false},
		"gaps":                      {[]message{m(1, 3, 0, 0), m(1, 9, 4, 2)}, false},
		"a noop before any chunk":   {[]message{m(0, 0, 0, 0), m(1, 1, 0, 0)}, false},
		"the same call again":       {[]message{m(1, 0, 0, 0), m(0, 0, 0, 0)}, true},
		"an earlier call":           {[]message{m(1, 5, 0, 0), m(1, 4, 1, 0)}, true},
		"the same chunk again":      {[]message{m(1, 0, 0, 0), m(1, 1, 0, 0)}, true},
		"an earlier epoch":          {[]message{m(1, 0, 0, 2), m(1, 1, 1, 1)}, true},
		"a negative call":           {[]message{m(1, -1, 0, 0)}, true},
		"an unknown action":         {[]message{m(4, 0, 0, 0)}, true},
	} {
		var o pipeline.Order
		for i, x := range c.messages {
			err := o.Accept(x.Action, x.IDs)
			if want := c.fails && i == len(c.messages)-1; (err != nil) != want {
				t.Errorf("%s: message %d: %v", name, i, err)
			}
		}
	}
}

func TestEnvelopeIsSentBeforeAResultIsDecoded(t *testing.T) {
	t.Parallel()
	var s pipeline.Stage0
	send := func() pipeline.IDs {
		t.Helper()
		if got := s.Next(true); got != pipeline.Send {
			t.Fatalf("next is %d, not Send", got)
		}
		ids := s.NextChunk()
		if err := s.Sent(4); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	receive := func(ids pipeline.IDs) {
		t.Helper()
		if v, err := s.Receive(ids, 4); v != pipeline.Accepted || err != nil {
			t.Fatalf("result of %+v: %v, %v", ids, v, err)
		}
	}
	first, second := send(), send()
	if got := s.Next(true); got != pipeline.Wait {
		t.Errorf("with two in flight: %d", got)
	}
	if err := s.Sent(4); err == nil {
		t.Error("a third chunk was sent")
	}
	receive(first)
	third := send() // before the decode of the first
	if got := s.Next(true); got != pipeline.Decode {
		t.Errorf("with two in flight and a result: %d", got)
	}
	receive(second)
	if s.CanReceive() {
		t.Error("a third result has room")
	}
	if got := s.Next(true); got != pipeline.Decode {
		t.Errorf("with full results: %d: the mesh could not read what is sent", got)
	}
	if _, err := s.Receive(third, 4); err == nil {
		t.Error("a third result was taken")
	}
	if ids, ok := s.Decoded(); !ok || ids != first {
		t.Errorf("decoded %+v", ids)
	}
}

func TestWrongResultsEndTheGroup(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]struct {
		ids      pipeline.IDs
		observed int
	}{
		"another count of calls": {pipeline.IDs{Call: 0, Chunk: 0}, 3},
		"a chunk out of order":   {pipeline.IDs{Call: 1, Chunk: 1}, 4},
		"never sent":             {pipeline.IDs{Call: 7, Chunk: 7}, 4},
		"a later epoch":          {pipeline.IDs{Call: 0, Chunk: 0, Epoch: 1}, 4},
	} {
		var s pipeline.Stage0
		_, _ = s.Sent(4), s.Sent(4)
		if _, err := s.Receive(wrong.ids, wrong.observed); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var s pipeline.Stage0
	ids := s.NextChunk()
	_ = s.Sent(4)
	if _, err := s.Receive(ids, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(ids, 4); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a result twice: %v", err)
	}
}

// TestStage0NeverDecodesWhatACutHasFlushed runs random steps against a list of what is open.
func TestStage0NeverDecodesWhatACutHasFlushed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s pipeline.Stage0
		var mesh []pipeline.IDs // sent, without a result
		var ready []pipeline.IDs
		call := int64(-1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"next", "next", "receive", "receive", "cut", "noop"}).Draw(t, "step") {
			case "next":
				switch s.Next(rapid.Bool().Draw(t, "pending")) {
				case pipeline.Send:
					ids := s.NextChunk()
					if ids.Call <= call || ids.Epoch != s.Epoch() {
						t.Fatalf("ids %+v after call %d", ids, call)
					}
					if err := s.Sent(1); err != nil {
						t.Fatal(err)
					}
					call, mesh = ids.Call, append(mesh, ids)
				case pipeline.Decode:
					ids, ok := s.Decoded()
					if !ok || ids != ready[0] || ids.Epoch != s.Epoch() {
						t.Fatalf("decoded %+v of %+v", ids, ready)
					}
					ready = ready[1:]
				}
			case "receive":
				if len(mesh) == 0 || !s.CanReceive() {
					continue
				}
				ids := mesh[0]
				mesh = mesh[1:]
				v, err := s.Receive(ids, 1)
				if err != nil || (v == pipeline.Stale) != (ids.Epoch < s.Epoch()) {
					t.Fatalf("result %+v in epoch %d: %v, %v", ids, s.Epoch(), v, err)
				}
				if v == pipeline.Accepted {
					ready = append(ready, ids)
				}
			case "cut":
				before, epoch := s.InFlight()+s.Ready(), s.Epoch()
				if n := len(s.Cut()); n != before || s.InFlight()+s.Ready() != 0 || s.Epoch() != epoch+1 {
					t.Fatalf("a cut flushed %d of %d", n, before)
				}
				ready = nil
			case "noop":
				ids := s.Control()
				if ids.Call <= call {
					t.Fatalf("call %d after %d", ids.Call, call)
				}
				call = ids.Call
			}
			if s.InFlight() > pipeline.DIn || s.Ready() > pipeline.DOut || s.Ready() != len(ready) {
				t.Fatalf("%d in flight, %d ready", s.InFlight(), s.Ready())
			}
		}
	})
}

func TestWatchdogEndsAWaitAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := pipeline.Watchdog{What: "result", Limit: time.Second}
		if err := w.Check(time.Now().Add(time.Hour)); err != nil {
			t.Errorf("nothing is awaited: %v", err)
		}
		w.Arm(time.Now())
		time.Sleep(900 * time.Millisecond)
		w.Arm(time.Now()) // does not restart the wait
		if err := w.Check(time.Now()); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		if err := w.Check(time.Now()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("at the limit: %v", err)
		}
		w.Seen(time.Now())
		if err := w.Check(time.Now()); err != nil {
			t.Errorf("after a sign of life: %v", err)
		}
		w.Disarm()
		if err := w.Check(time.Now().Add(time.Hour)); err != nil {
			t.Errorf("disarmed: %v", err)
		}
	})
}

func TestOverlapIsTheHiddenShareOfTheShorterStage(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		period, stage0, stage1 time.Duration
		want                   float64
	}{
		{30 * ms, 10 * ms, 20 * ms, 0}, // one after the other
		{20 * ms, 10 * ms, 20 * ms, 1}, // all hidden
		{25 * ms, 10 * ms, 20 * ms, 0.5},
		{40 * ms, 10 * ms, 20 * ms, 0}, // and idle
		{20 * ms, 0, 20 * ms, 0},       // nothing to hide
		{20 * ms, 10 * ms, 12 * ms, 0.2},
	} {
		if got := pipeline.Overlap(c.period, c.stage0, c.stage1); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// run simulates a pipeline of constant stages; decodeFirst sends the next chunk after the
// decode of the one before.
func run(n int, prepare, generate, decode time.Duration, decodeFirst bool) (out []pipeline.Timing) {
	type event struct {
		at  time.Duration
		ids pipeline.IDs
	}
	var s pipeline.Stage0
	var now, meshFree time.Duration
	timings := map[int64]*pipeline.Timing{}
	var results []event
	for sent := 0; len(out) < n; {
		for len(results) > 0 && results[0].at <= now && s.CanReceive() {
			t := timings[results[0].ids.Chunk]
			t.InFlight, t.Ready = s.InFlight(), s.Ready()
			if _, err := s.Receive(results[0].ids, 1); err != nil {
				panic(err)
			}
			results = results[1:]
		}
		pending := sent < n && (!decodeFirst || s.InFlight()+s.Ready() == 0)
		switch s.Next(pending) {
		case pipeline.Send:
			ids := s.NextChunk()
			t := &pipeline.Timing{Begun: now, Prepared: now + prepare, Stage1: generate}
			now += prepare
			begin := max(now, meshFree)
			if sent > 0 {
				t.Idle = begin - meshFree
			}
			meshFree = begin + generate
			results = append(results, event{meshFree, ids})
			timings[ids.Chunk] = t
			_ = s.Sent(1)
			sent++
		case pipeline.Decode:
			ids, _ := s.Decoded()
			t := timings[ids.Chunk]
			t.Received = now
			now += decode
			t.Emitted = now
			out = append(out, *t)
		case pipeline.Wait:
			now = max(now, results[0].at)
		}
	}
	return out
}

func TestSignatureSaysWhatBoundsARun(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		prepare, generate, decode time.Duration
		decodeFirst               bool
		want                      pipeline.Signature
		period                    time.Duration
		score                     float64
	}{
		"the mesh is slower":      {3 * ms, 20 * ms, 4 * ms, false, pipeline.Stage1Bound, 20 * ms, 1},
		"stage 0 is slower":       {8 * ms, 6 * ms, 10 * ms, false, pipeline.Stage0Bound, 18 * ms, 1},
		"decoding before sending": {3 * ms, 20 * ms, 14 * ms, true, pipeline.SchedulingBug, 37 * ms, 0},
	} {
		r := pipeline.Measure(run(60, c.prepare, c.generate, c.decode, c.decodeFirst))
		if r.Signature != c.want || r.Period != c.period || r.OverlapScore != c.score || r.Chunks != 49 {
			t.Errorf("%s: %+v", name, r)
		}
		if r.MaxInFlight > pipeline.DIn || r.MaxReady > pipeline.DOut {
			t.Errorf("%s: queues of %d and %d", name, r.MaxInFlight, r.MaxReady)
		}
	}
	if r := pipeline.Measure(run(11, ms, ms, ms, false)); r.Signature != pipeline.WarmingUp || r.Chunks != 0 {
		t.Errorf("11 chunks: %+v", r)
	}
	if !slices.Equal([]pipeline.Signature{pipeline.Measure(nil).Signature}, []pipeline.Signature{pipeline.WarmingUp}) {
		t.Error("no chunks have a signature")
	}
}
