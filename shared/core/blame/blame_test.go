package blame

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const usual = 20 * time.Millisecond // that a request takes

// ok answers everything.
func ok(string, int, time.Duration) (Outcome, time.Duration) { return Answered, usual }

// except lets the outcomes of some requests differ.
func except(when func(server string, item int, at time.Duration) bool, o Outcome, took time.Duration,
) func(string, int, time.Duration) (Outcome, time.Duration) {
	return func(server string, item int, at time.Duration) (Outcome, time.Duration) {
		if when(server, item, at) {
			return o, took
		}
		return ok(server, item, at)
	}
}

// TestWhoIsBlamed is the table of faults: who meets them, and what comes of it.
func TestWhoIsBlamed(t *testing.T) {
	t.Parallel()
	none := func(string, int, time.Duration) bool { return false }
	only := func(items ...int) func(string, int, time.Duration) bool {
		return func(_ string, item int, _ time.Duration) bool { return slices.Contains(items, item) }
	}
	blip := func(_ string, _ int, at time.Duration) bool { return at > time.Second && at < 4*time.Second }
	one := only(5)
	bad := func(server string, _ int, _ time.Duration) bool { return server == "b" }
	badBlip := func(s string, i int, at time.Duration) bool { return bad(s, i, at) && blip(s, i, at) }
	all := func(string, int, time.Duration) bool { return true }
	from := func(since time.Duration) func(string, int, time.Duration) bool {
		return func(_ string, item int, at time.Duration) bool { return at > since }
	}
	itemsFrom := func(since time.Duration) func(string, int, time.Duration) bool {
		return func(_ string, item int, at time.Duration) bool { return at > since && item >= 0 }
	}
	for name, c := range map[string]struct {
		when     func(string, int, time.Duration) bool
		nature   Nature
		servers  []string
		inFlight int
		items    int
		charged  int
		refused  bool
		extra    int // requests beyond one for each item, at most
	}{
		"nothing fails":                        {none, Setting, one1, 16, 400, 0, false, 0},
		"one item of 20":                       {one, Setting, one1, 16, 20, 1, false, 12},
		"one item of 400":                      {one, Setting, one1, 16, 400, 1, false, 12},
		"one item, one request at once":        {one, Setting, one1, 1, 20, 1, false, 24},
		"one item of two":                      {only(1), Setting, one1, 16, 2, 1, false, 24},
		"one item is throttled for ever":       {one, Outage, one1, 16, 400, 1, false, 12},
		"one item on two servers":              {one, Setting, two, 16, 400, 1, false, 16},
		"three items hold all slots":           {only(30, 31, 32), Setting, one1, 3, 40, 3, false, 100},
		"a blip of a setting":                  {blip, Setting, one1, 16, 2000, 0, false, 40},
		"a blip of an outage":                  {blip, Outage, one1, 16, 2000, 0, false, 40},
		"a blip, one request at once":          {blip, Setting, one1, 1, 300, 0, false, 40},
		"a blip of one of two servers":         {badBlip, Setting, two, 16, 2000, 0, false, 40},
		"one of two servers is bad":            {bad, Setting, two, 16, 400, 0, false, 40},
		"everything is refused":                {all, Setting, one1, 16, 400, 0, true, -380},
		"everything is refused by both":        {all, Setting, two, 16, 400, 0, true, -380},
		"everything is refused, one at once":   {all, Setting, one1, 1, 400, 0, true, -380},
		"everything is refused, one item":      {all, Setting, one1, 16, 1, 0, true, 19},
		"a setting is lost in mid-run":         {from(time.Second), Setting, one1, 16, 4000, 0, true, 0},
		"items fail, comparisons are answered": {itemsFrom(time.Second), Outage, one1, 16, 4000, few, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, c.items, c.inFlight, c.servers...)
			w.outcome, w.nature = except(c.when, "status_403", time.Millisecond), c.nature
			took := w.run(time.Hour)
			answered, charged := w.count()
			if c.charged == few && charged <= maxCharged {
				charged = few
			}
			if charged != c.charged || (w.refused != nil) != c.refused || !c.refused && answered+charged != c.items {
				t.Errorf("%d answered, %d charged, refused %v after %s; want %d charged, refused %v",
					answered, charged, w.refused, took, c.charged, c.refused)
			}
			asked := w.compared
			for i, n := range w.asked {
				asked += n
				if charged > 0 && !c.refused && n > 1 && !w.charged[i] {
					t.Errorf("item %d, which is not at fault, was asked %d times", i, n)
				}
			}
			if asked > c.items+c.extra {
				t.Errorf("%d requests, %d of them comparisons, for %d items; want at most %d more",
					asked, w.compared, c.items, c.extra)
			}
			t.Logf("%d requests, %d comparisons, %s", asked, w.compared, took)
		})
	}
}

// few is the number of items that may be charged before a setting is found.
const few = -1

var (
	one1 = []string{"a"}
	two  = []string{"a", "b"}
)

// An outage of any length, of any servers, at any time charges no item.
func TestOutagesChargeNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 300).Draw(t, "items"),
			rapid.IntRange(1, 32).Draw(t, "in flight"), two[:rapid.IntRange(1, 2).Draw(t, "servers")]...)
		w.nature = Outage
		begin := time.Duration(rapid.IntRange(0, 3000).Draw(t, "begin")) * time.Millisecond
		end := begin + time.Duration(rapid.IntRange(1, 200_000).Draw(t, "length"))*time.Millisecond
		fast := rapid.Bool().Draw(t, "fast")
		only := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "only")
		w.outcome = func(server string, _ int, at time.Duration) (Outcome, time.Duration) {
			took := time.Duration(1 + w.rand.IntN(int(2*time.Second)))
			if at >= begin && at < end && (only == "" || only == server) {
				if fast {
					took = time.Millisecond
				}
				return "status_500", took
			}
			return Answered, took
		}
		w.run(24 * time.Hour)
		if answered, charged := w.count(); charged > 0 || answered < len(w.asked) {
			t.Fatalf("%d of %d answered, %d charged, refused %v", answered, len(w.asked), charged, w.refused)
		}
	})
}

// A server that fails at random charges at most one item of 10,000, and every other
// item is answered.
func TestRandomFailuresChargeAlmostNobody(t *testing.T) {
	t.Parallel()
	const worlds, items = 50, 400
	sum := 0
	for seed := range uint64(worlds) {
		w := newWorld(seed, items, 1+int(seed%32), "a")
		w.nature = Outage
		share := float64(seed) / worlds * 0.6
		w.outcome = func(string, int, time.Duration) (Outcome, time.Duration) {
			took := time.Duration(1 + w.rand.IntN(int(100*time.Millisecond)))
			if w.rand.Float64() < share {
				return "status_429", took
			}
			return Answered, took
		}
		w.run(24 * time.Hour)
		answered, charged := w.count()
		if answered+charged < items {
			t.Errorf("share %.2f: %d answered, %d charged, refused %v", share, answered, charged, w.refused)
		}
		sum += charged
	}
	if sum > worlds*items/10_000 {
		t.Errorf("%d of %d items charged", sum, worlds*items)
	}
}

// Items that always fail are charged in a bounded number of tries. The others are
// asked once.
func TestBadItemsAreChargedAndNoOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const items = 200
		w := newWorld(rapid.Uint64().Draw(t, "seed"), items, rapid.IntRange(1, 32).Draw(t, "in flight"),
			two[:rapid.IntRange(1, 2).Draw(t, "servers")]...)
		w.nature = rapid.SampledFrom([]Nature{Setting, Outage}).Draw(t, "nature")
		share := rapid.Float64Range(0, map[Nature]float64{Setting: 0.5, Outage: 0.1}[w.nature]).Draw(t, "share")
		bad := make([]bool, items)
		for i := range bad {
			bad[i] = i > 0 && w.rand.Float64() < share
		}
		w.outcome = func(_ string, i int, _ time.Duration) (Outcome, time.Duration) {
			if i >= 0 && bad[i] {
				return "status_403", time.Duration(1 + w.rand.IntN(int(100*time.Millisecond)))
			}
			return Answered, time.Duration(1 + w.rand.IntN(int(100*time.Millisecond)))
		}
		w.run(24 * time.Hour)
		for i, is := range bad {
			switch {
			case w.charged[i] != is, w.answered[i] == is:
				t.Fatalf("item %d, bad %v: charged %v, answered %v; refused %v", i, is, w.charged[i], w.answered[i],
					w.refused)
			case !is && w.asked[i] > 1:
				t.Fatalf("item %d, which is good, was asked %d times", i, w.asked[i])
			case w.asked[i] > maxOutageTries+1:
				t.Fatalf("item %d was asked %d times", i, w.asked[i])
			}
		}
	})
}

// Where many items fail for good, they do not need more tries each than where few do.
func TestManyBadItemsNeedFewTriesEach(t *testing.T) {
	t.Parallel()
	const items = 400
	for _, share := range []float64{0.02, 0.2, 0.5} {
		w := newWorld(1, items, 8, one1...)
		bad := make([]bool, items)
		count := 0
		for i := range bad {
			if bad[i] = i > 0 && w.rand.Float64() < share; bad[i] {
				count++
			}
		}
		w.outcome = func(_ string, i int, _ time.Duration) (Outcome, time.Duration) {
			if i >= 0 && bad[i] {
				return "status_400", time.Duration(1 + w.rand.IntN(int(100*time.Millisecond)))
			}
			return Answered, time.Duration(1 + w.rand.IntN(int(100*time.Millisecond)))
		}
		w.run(24 * time.Hour)
		if _, charged := w.count(); charged != count || w.failures > 3*count+40 {
			t.Errorf("share %.2f: %d of %d bad items charged after %d requests", share, charged, count, w.failures)
		}
	}
}

// The last items of a run may all be at fault themselves. It takes long until that shows
// beside a server that refuses others at random, or throttles them for ever. The run is not
// refused: its comparisons are answered.
func TestRunIsNotRefusedForItsLastItems(t *testing.T) {
	t.Parallel()
	const items, bad = 60, 20
	for seed := range uint64(20) {
		w := newWorld(seed, items, 1+int(seed), two[:1+seed%2]...)
		w.natures = map[Outcome]Nature{"status_429": Outage}
		w.outcome = func(_ string, item int, _ time.Duration) (Outcome, time.Duration) {
			took := time.Duration(1 + w.rand.IntN(int(time.Second)))
			switch {
			case item >= items-bad && item%4 == 0:
				return "status_403", took
			case item >= items-bad || w.rand.Float64() < 0.3:
				return "status_429", took
			}
			return Answered, took
		}
		w.run(10 * time.Hour)
		if answered, charged := w.count(); w.refused != nil || answered != items-bad || charged != bad {
			t.Errorf("seed %d: refused %+v, %d answered, %d charged", seed, w.refused, answered, charged)
		}
	}
}

// Whatever a run's first requests meet, few are spent until one is answered.
func TestFirstContactSpendsFewRequests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), 500, rapid.IntRange(1, 64).Draw(t, "in flight"),
			two[:rapid.IntRange(1, 2).Draw(t, "servers")]...)
		w.nature = rapid.SampledFrom([]Nature{Setting, Outage}).Draw(t, "nature")
		w.outcome = func(string, int, time.Duration) (Outcome, time.Duration) {
			return "status_401", time.Duration(1 + w.rand.IntN(int(3*time.Second)))
		}
		w.run(10 * time.Minute)
		asked := 0
		for _, n := range w.asked {
			asked += n
		}
		if asked > 20 || (w.refused != nil) != (w.nature == Setting) {
			t.Fatalf("%d requests, refused %v", asked, w.refused)
		}
	})
}

// A retry of items that are at fault themselves meets hardly an answer. One failure
// among them says nothing about the run.
func TestRunOfBadItemsIsNotRefusedForAStrayFailure(t *testing.T) {
	t.Parallel()
	l, now := New("a"), time.Unix(0, 0)
	l.Begin("run", 1, Answered, false)
	for i := range uint64(100) {
		item := Item{"run", i}
		a := l.Admit(item, &Evidence{}, true, now)
		for ; !a.Go; a = l.Admit(item, &Evidence{}, true, now) {
			if a.Refused != nil || now.Sub(time.Unix(0, 0)) > time.Hour {
				t.Fatalf("item %d: %+v", i, a)
			}
			if a.Compare != "" {
				l.Answered(l.Compare(a.Compare, "run", now), a.Compare, now)
			}
			now = now.Add(time.Second)
		}
		now = now.Add(time.Millisecond)
		if i%9 == 0 {
			l.Failed(a.Request, "a", Failure{Outcome: "status_429", Nature: Outage}, now)
		} else {
			l.Works(a.Request, "a")
		}
	}
}

// A worker that begins in the middle of a run knows none of its servers. Whichever is bad,
// and however slowly requests follow each other, the good one gets most of them.
func TestGoodServerGetsMostRequestsBesideOneThatFails(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a", "b"} {
		l, now := New("a", "b"), time.Unix(0, 0)
		l.Begin("run", 1, Answered, true)
		got := map[bool]int{}
		for i := range uint64(12) {
			item := Item{"run", i / 4} // few items, so that the bad server stays trusted for long
			a := l.Admit(item, &Evidence{}, i%4 == 0, now)
			if !a.Go {
				t.Fatalf("%s is bad: %+v", bad, a)
			}
			now = now.Add(5 * time.Second)
			isBad := len(a.Servers) == 0 || slices.Contains(a.Servers, bad)
			got[isBad]++
			if isBad {
				l.Failed(a.Request, bad, Failure{Outcome: "corrupt", Nature: Setting}, now)
			} else {
				l.Answered(a.Request, a.Servers[0], now)
			}
		}
		if got[true] > 6 {
			t.Errorf("%s is bad, and got %d of 12 requests", bad, got[true])
		}
	}
}

// A worker that is restarted in the middle of a run gets the items that are left: those
// that its server refuses, since the others are answered. It finds out that the run has
// answers, and charges them.
func TestRestartedWorkerDoesNotRefuseRunWithAnswers(t *testing.T) {
	t.Parallel()
	for _, documented := range []bool{false, true} {
		for _, bad := range []int{1, 3, maxCharged} {
			w := newWorld(1, 200, 64, "a")
			w.outcome = except(func(_ string, item int, _ time.Duration) bool { return 0 < item && item <= bad },
				"status_400", 3*time.Second)
			w.documented = documented
			w.queue = append(w.queue, event{w.start.Add(2500 * time.Millisecond), anyLife, w.restart})
			w.run(time.Hour)
			if answered, charged := w.count(); w.refused != nil || charged != bad || answered != 200-bad {
				t.Errorf("%d bad items, documented %v: %d answered, %d charged, refused %+v", bad, documented, answered,
					charged, w.refused)
			}
		}
	}
}

// A setting that is lost in mid-run pauses it, though the worker that meets it was
// restarted: after a minute without an answer, and few requests.
func TestRestartedWorkerRefusesRunWhoseSettingIsLost(t *testing.T) {
	t.Parallel()
	for _, documented := range []bool{false, true} {
		w := newWorld(1, 2000, 16, "a")
		w.outcome = except(func(_ string, _ int, at time.Duration) bool { return at > time.Second }, "status_401", usual)
		w.documented = documented
		var before int
		w.queue = append(w.queue, event{w.start.Add(1200 * time.Millisecond), anyLife, func() {
			before = w.requests()
			w.restart()
		}})
		took := w.run(time.Hour)
		if _, charged := w.count(); w.refused == nil || charged > 0 || took < WithoutAnswer || took > 2*WithoutAnswer ||
			w.requests()-before > 40 {
			t.Errorf("documented %v: refused %+v after %s and %d requests, %d charged", documented, w.refused, took,
				w.requests()-before, charged)
		}
	}
}

// A server that hangs, and answers garbage for moments meanwhile, is away: its run is not
// paused for a setting.
func TestServerThatHangsPausesNoRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), 300, rapid.IntRange(1, 32).Draw(t, "in flight"), "a")
		ends := time.Duration(rapid.IntRange(10, 300).Draw(t, "end")) * time.Second
		w.outcome = func(_ string, item int, at time.Duration) (Outcome, time.Duration) {
			took := time.Duration(1 + w.rand.IntN(int(100*time.Millisecond)))
			switch {
			case at < time.Second || at > ends:
				return Answered, took
			case at < 2*time.Second, at%(45*time.Second) < time.Second: // garbage
				return "corrupt", took
			}
			return hangs, 30 * time.Second
		}
		w.run(24 * time.Hour)
		if answered, _ := w.count(); answered < len(w.asked) {
			t.Fatalf("%d of %d answered, refused %+v", answered, len(w.asked), w.refused)
		}
	})
}

// Where one server of two fails for good, a run of bad items alone is tried at the other
// one, and has an end there.
func TestRunOfBadItemsHasAnEndThoughOneServerIsBad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(seed, 5, 1+int(seed), two...)
		w.nature = Outage
		w.outcome = func(server string, item int, _ time.Duration) (Outcome, time.Duration) {
			switch {
			case server == "b":
				return "status_408", usual
			case item >= 0:
				return "status_500", usual
			}
			return Answered, usual
		}
		took := w.run(time.Hour)
		asked := w.requests() - w.compared
		if w.refused == nil || w.refused.Outcome != "status_500" || took > 3*time.Minute || asked > 20 {
			t.Errorf("seed %d: refused %+v after %s and %d requests", seed, w.refused, took, asked)
		}
	}
}

// A server that denies everything does not refuse a run while another one is away, which
// may answer it: for five minutes at most.
func TestRunWaitsForAServerThatIsAwayBeforeItIsRefused(t *testing.T) {
	t.Parallel()
	for away, refused := range map[time.Duration]bool{20 * time.Second: false, 2 * time.Minute: false, time.Hour: true} {
		for seed := range uint64(20) {
			w := newWorld(seed, 50, 1+int(seed), two...)
			w.outcome = func(server string, _ int, at time.Duration) (Outcome, time.Duration) {
				switch {
				case server == "b":
					return "status_401", usual
				case at < away:
					return hangs, 10 * time.Second
				}
				return Answered, usual
			}
			took := w.run(2 * time.Hour)
			answered, charged := w.count()
			if (w.refused != nil) != refused || charged > 0 || !refused && answered < 50 || refused && took > 10*time.Minute {
				t.Errorf("away for %s, seed %d: refused %+v after %s, %d answered, %d charged", away, seed, w.refused, took,
					answered, charged)
			}
		}
	}
}

// What a run met before the five minutes were over is no reason to refuse it after them: a
// user may have mended it since.
func TestRunIsNotRefusedForWhatWasMendedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, before := range []time.Duration{2 * time.Minute, 10 * time.Second, time.Second} {
		mended := 5*time.Minute - before
		for seed := range uint64(20) {
			w := newWorld(seed, 50, 1+int(seed), two...)
			w.outcome = func(server string, _ int, at time.Duration) (Outcome, time.Duration) {
				switch {
				case server == "a":
					return hangs, 10 * time.Second
				case at < mended:
					return "status_401", usual
				}
				return Answered, usual
			}
			w.run(2 * time.Hour)
			if answered, charged := w.count(); w.refused != nil || charged > 0 || answered < 45 {
				t.Errorf("mended after %s, seed %d: refused %+v, %d answered, %d charged", mended, seed, w.refused,
					answered, charged)
			}
		}
	}
}

// A setting that was mended within the minute refuses no run, though nothing was asked since.
func TestRunIsNotRefusedForASettingThatWasMendedWithinTheMinute(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		w := newWorld(seed, 200, 1+int(seed%8), "a")
		w.outcome = func(_ string, _ int, at time.Duration) (Outcome, time.Duration) {
			if at >= 2*time.Second && at < 61*time.Second {
				return "status_401", usual
			}
			return Answered, usual
		}
		w.run(time.Hour)
		if answered, charged := w.count(); w.refused != nil || charged > 0 || answered < 200 {
			t.Errorf("seed %d: refused %+v, %d answered, %d charged", seed, w.refused, answered, charged)
		}
	}
}

// A run of which every request is denied is refused, though the server has outages for
// moments meanwhile, and answers no small question.
func TestRunThatIsDeniedIsRefusedThoughTheServerIsOverloaded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		w := newWorld(seed, 50, 1+int(seed%8), two[:1+seed%2]...)
		w.natures = map[Outcome]Nature{"status_429": Outage}
		w.outcome = func(_ string, item int, _ time.Duration) (Outcome, time.Duration) {
			switch {
			case w.rand.Float64() < 0.3:
				return "status_429", usual
			case item == smallQuestion:
				return "status_404", usual
			}
			return "status_401", usual
		}
		took := w.run(24 * time.Hour)
		if w.refused == nil || took > 15*time.Minute {
			t.Errorf("seed %d: refused %+v after %s and %d requests", seed, w.refused, took, w.requests())
		}
	}
}
