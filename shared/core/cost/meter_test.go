package cost_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/cost"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// seconds is a use of so many seconds of each part, of a machine that costs $3.60 an hour:
// a thousandth of a dollar a second.
func seconds(busy, boot, idle float64) cost.Use {
	u := cost.Use{Busy: int64(busy * 1e6), Boot: int64(boot * 1e6), Idle: int64(idle * 1e6)}
	return u.At(3.6)
}

func TestMachineTimeIsDividedBySlotSeconds(t *testing.T) {
	t.Parallel()
	m := cost.NewMeter(at(0), at(10), 3.6, 1)
	var a, b cost.Share
	m.Ready(at(60))
	m.Begin(at(70), &a, at(0)) // a alone
	m.Begin(at(80), &b, at(0)) // one of two each
	m.Begin(at(90), &b, at(0)) // one of three, two of three
	m.End(at(120), &b)
	m.End(at(130), &b)
	m.End(at(140), &a)
	for _, c := range []struct {
		name string
		got  cost.Use
		want cost.Use
	}{
		{"the first shard has the boot and the wait", m.Use(at(150), &a), seconds(10+5+10+5+10, 60, 10)},
		{"the other one its part", m.Use(at(150), &b), seconds(5+20+5, 0, 0)},
		{"the rest is unclaimed", m.Unclaimed(at(150)), seconds(0, 0, 10)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	if usd := seconds(40, 60, 10).USD(); usd != 0.11 {
		t.Errorf("110 s cost $%g, want $0.11", usd)
	}
}

func TestTimeBeforeTheSubmissionIsNotTheRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		submitted       float64
		want, unclaimed cost.Use
	}{
		"before the machine":   {-5, seconds(0, 30, 20), seconds(0, 0, 0)},
		"during its boot":      {10, seconds(0, 20, 20), seconds(0, 10, 0)},
		"while it waited":      {35, seconds(0, 0, 15), seconds(0, 30, 5)},
		"after it, by a clock": {60, seconds(0, 0, 0), seconds(0, 30, 20)},
	} {
		m := cost.NewMeter(at(0), at(1), 3.6, 1)
		m.Ready(at(30))
		var s cost.Share
		m.Begin(at(50), &s, at(c.submitted))
		if got, rest := m.Use(at(50), &s), m.Unclaimed(at(50)); got != c.want || rest != c.unclaimed {
			t.Errorf("submitted %s: %+v and %+v unclaimed, want %+v and %+v", name, got, rest, c.want, c.unclaimed)
		}
	}
}

func TestWorkersShareAMachine(t *testing.T) {
	t.Parallel()
	m := cost.NewMeter(at(0), at(0), 3.6, 4)
	var s cost.Share
	m.Ready(at(40))
	m.Begin(at(40), &s, at(0))
	if got, want := m.Use(at(140), &s), seconds(25, 10, 0); got != want {
		t.Errorf("one of four workers has %+v, want %+v", got, want)
	}
}

// TestPartsAddUpToTheMachine begins and ends requests of several shards at any time, with a
// clock that also runs backwards.
func TestPartsAddUpToTheMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		launched := noon.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "boot")))
		m := cost.NewMeter(launched, noon, 0.8, 1)
		shares := make([]cost.Share, rapid.IntRange(1, 5).Draw(t, "shards"))
		open := make([]int, len(shares))
		now, latest, requests := noon, noon, 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Millisecond), int64(time.Second)).Draw(t, "passed")))
			if now.After(latest) {
				latest = now
			}
			i := rapid.IntRange(0, len(shares)-1).Draw(t, "shard")
			if open[i] > 0 && rapid.Bool().Draw(t, "ends") {
				open[i]--
				m.End(now, &shares[i])
				continue
			}
			open[i]++
			requests++
			since := launched.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "submitted")))
			m.Begin(now, &shares[i], since)
		}
		sum := m.Unclaimed(now)
		for i := range shares {
			u := m.Use(now, &shares[i])
			if u.Busy < 0 || u.Boot < 0 || u.Idle < 0 {
				t.Fatalf("shard %d has %+v", i, u)
			}
			sum = sum.Plus(u)
		}
		// Each part is rounded to a microsecond, and what can't be divided is below one.
		whole, slack := latest.Sub(launched).Microseconds(), int64(3*len(shares)+4)
		if d := sum.Micros() - whole; d > slack || d < -slack {
			t.Fatalf("the parts have %d µs, the machine %d µs", sum.Micros(), whole)
		}
		if usd, want := sum.USD(), 0.8*latest.Sub(launched).Hours(); usd-want > 1e-6 || want-usd > 1e-6 {
			t.Fatalf("the parts cost $%g, the machine $%g", usd, want)
		}
	})
}
