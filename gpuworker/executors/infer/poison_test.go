package infer_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// The server crashes whenever a poison prompt arrives.
func TestC22OnlyPoisonItemsAreQuarantined(t *testing.T) {
	t.Parallel()
	slowRestart := func(m *crashingEngine) { m.restartAfter = 18 * time.Second }
	for name, c := range map[string]struct {
		items   []int
		most    int // crashes
		workers int
		edit    func(*crashingEngine)
	}{
		"one":                                {[]int{434}, 4, 1, nil},
		"the first item":                     {[]int{0}, 4, 1, nil},
		"the last item":                      {[]int{799}, 4, 1, nil},
		"two in one shard":                   {[]int{403, 477}, 8, 1, nil},
		"two adjacent items":                 {[]int{403, 404}, 8, 1, nil},
		"slow restart":                       {[]int{434}, 4, 1, slowRestart},
		"server crashes late":                {[]int{434}, 4, 1, func(m *crashingEngine) { m.crashAfter = 5 * time.Second }},
		"server crashes at once":             {[]int{434}, 4, 1, func(m *crashingEngine) { m.crashAfter = 0 }},
		"server names no starts":             {[]int{434}, 4, 1, func(m *crashingEngine) { m.noStart = true }},
		"server reports no other load":       {[]int{434}, 7, 1, func(m *crashingEngine) { m.exclusive = false }},
		"three workers":                      {[]int{434}, 8, 3, nil},
		"three workers, two in one shard":    {[]int{403, 477}, 8, 3, nil},
		"three workers, slow answers":        {[]int{434}, 8, 3, func(m *crashingEngine) { m.latency = 3 * time.Second }},
		"three workers, server crashes late": {[]int{434}, 8, 3, func(m *crashingEngine) { m.crashAfter = 2 * time.Second }},
		"three workers, slow restart":        {[]int{434}, 8, 3, slowRestart},
		"three workers, no starts named":     {[]int{434}, 8, 3, func(m *crashingEngine) { m.noStart = true }},
		"one in each of three shards":        {[]int{10, 110, 210}, 12, 1, nil},
		"no poison":                          {nil, 0, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newCrashingEngine(c.items...)
				if c.edit != nil {
					c.edit(m)
				}
				w := newCrashFixture(t, m, 8)
				for range c.workers {
					w.startWorker()
				}
				w.wantPoison(w.runFor(time.Hour), append([]int{}, c.items...)...)
				w.wantCrashes(c.most)
			})
		})
	}
}

// With any latencies and numbers of workers, only poison items are charged, and the
// number of crashes stays within its bound.
func TestC22RandomTimings(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				items := []int{rng.IntN(1000)}
				if rng.IntN(2) == 0 {
					items = append(items, items[0]+1+rng.IntN(50))
				}
				m := newCrashingEngine(items...)
				m.latency = time.Duration(1 + rng.IntN(4000*1e6))
				m.crashAfter = time.Duration(1 + rng.IntN(3000*1e6))
				m.restartAfter = time.Duration(1 + rng.IntN(20000*1e6))
				m.noStart, m.exclusive = rng.IntN(2) == 0, rng.IntN(4) != 0
				w := newCrashFixture(t, m, 11)
				for range 1 + rng.IntN(4) {
					w.startWorker()
				}
				w.wantPoison(w.runFor(3*time.Hour), items...)
				most := 4
				if !m.exclusive || w.workers > 1 {
					most = 6
				}
				w.wantCrashes(most * len(items))
			})
		})
	}
}

// The engine lives in the worker's process and both crash at once. The only hint is
// what the shard's document names.
func TestC22PoisonIsFoundWhenEngineCrashesItsWorker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items []int
		most  int
	}{
		"one":              {[]int{434}, 7},
		"two in one shard": {[]int{403, 477}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newCrashingEngine(c.items...)
				w := newCrashFixture(t, m, 8)
				var kill func()
				m.restartAfter, w.engine = 0, ""
				m.onCrash = func() {
					kill()
					time.AfterFunc(time.Second, func() { // the supervisor restarts it
						m.mu.Lock()
						m.down = false
						m.mu.Unlock()
						kill = w.startWorker()
					})
				}
				kill = w.startWorker()
				w.wantPoison(w.runFor(time.Hour), c.items...)
				w.wantCrashes(c.most)
			})
		})
	}
}

// Workers that are killed for other reasons while they answer one slow item do not
// make it poison.
func TestKilledWorkersDoNotMakeSlowItemPoison(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]string{"engine in the worker": "", "engine in a server": "server"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newCrashingEngine()
				m.slow = `"42"`
				w := newCrashFixture(t, m, 1)
				w.engine = engine
				for range 2 {
					kill := w.startWorker()
					w.runFor(70 * time.Second) // all other rows are in a checkpoint
					kill()
				}
				for n := range 4 {
					kill := w.startWorker()
					if d := w.runFor(30 * time.Second)[0]; !slices.Equal(d.OnProbation, []int{42}) || d.Crashes[42].Shared != n {
						t.Errorf("after %d killed workers the shard is %+v", n+2, d)
					}
					kill()
				}
				w.startWorker()
				w.wantPoison(w.runFor(time.Hour))
			})
		})
	}
}

func TestItemWithManyDecodesIsQuarantinedAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 3
		w := newCrashFixture(t, newCrashingEngine(42), 1, func(m *record.Manifest) { m.Config.Sampling.N = &n })
		w.startWorker()
		w.wantPoison(w.runFor(time.Hour), 42)
		w.wantCrashes(4)
	})
}

// A shard is released with its suspects when the engine stays down, and the next
// holder continues from there.
func TestSuspectsSurviveOutageAndWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newCrashingEngine(42)
		m.restartAfter = 0
		w := newCrashFixture(t, m, 1)
		kill := w.startWorker()
		docs := w.runFor(8 * time.Second)
		if d := docs[0]; d.State != shard.Running || !d.Suspects.Has(42) || d.Suspects.Len() > 32 {
			t.Fatalf("during the outage the shard is %+v", d)
		}
		docs = w.runFor(20 * time.Second)
		if d := docs[0]; d.State != shard.Pending || !d.Suspects.Has(42) || d.Counts.Failed != 0 {
			t.Fatalf("after MaxOutage the shard is %+v", d)
		}
		suspects := docs[0].Suspects
		kill()
		m.mu.Lock()
		m.down, m.restartAfter = false, 3*time.Second
		asked := maps.Clone(m.asked)
		m.mu.Unlock()
		w.startWorker()
		docs = w.runFor(time.Hour)
		w.wantPoison(docs, 42)
		w.wantCrashes(4)
		m.mu.Lock()
		defer m.mu.Unlock()
		for body, n := range m.asked {
			if strings.Contains(body, m.poison[0]) && n != 4 {
				t.Errorf("the poison item was asked %d times, want 4", n)
			}
			if !strings.Contains(body, m.poison[0]) && n > asked[body]+3 {
				t.Errorf("%s was asked %d times, of the suspects %v", body, n, suspects)
			}
		}
	})
}
