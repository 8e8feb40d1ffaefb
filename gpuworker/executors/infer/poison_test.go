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

// C22: the server dies whenever one given prompt arrives.
func TestC22OnePoisonousPromptIsQuarantinedAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		items   []int
		most    int // deaths
		workers int
		edit    func(*crashingEngine)
	}{
		"one":                               {[]int{434}, 4, 1, nil},
		"the very first":                    {[]int{0}, 4, 1, nil},
		"the very last":                     {[]int{799}, 4, 1, nil},
		"two in one shard":                  {[]int{403, 477}, 8, 1, nil},
		"two beside each other":             {[]int{403, 404}, 8, 1, nil},
		"a server that is slow to start":    {[]int{434}, 4, 1, func(m *crashingEngine) { m.restarts = 18 * time.Second }},
		"a server that dies late":           {[]int{434}, 4, 1, func(m *crashingEngine) { m.lives = 5 * time.Second }},
		"a server that dies at once":        {[]int{434}, 4, 1, func(m *crashingEngine) { m.lives = 0 }},
		"a server that does not say when":   {[]int{434}, 4, 1, func(m *crashingEngine) { m.silent = true }},
		"a server that never says alone":    {[]int{434}, 7, 1, func(m *crashingEngine) { m.lonely = false }},
		"three workers at one server":       {[]int{434}, 8, 3, nil},
		"three workers, two in one shard":   {[]int{403, 477}, 8, 3, nil},
		"three workers at a slow server":    {[]int{434}, 8, 3, func(m *crashingEngine) { m.latency = 3 * time.Second }},
		"three workers, and it dies late":   {[]int{434}, 8, 3, func(m *crashingEngine) { m.lives = 2 * time.Second }},
		"three workers, slow to start":      {[]int{434}, 8, 3, func(m *crashingEngine) { m.restarts = 18 * time.Second }},
		"three workers, it says no starts":  {[]int{434}, 8, 3, func(m *crashingEngine) { m.silent = true }},
		"three in as many shards, at once":  {[]int{10, 110, 210}, 12, 1, nil},
		"no poison and no death whatsoever": {nil, 0, 2, nil},
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
					w.startWorkers()
				}
				w.wantPoison(w.until(time.Hour), append([]int{}, c.items...)...)
				w.wantDeaths(c.most)
			})
		})
	}
}

// Nobody else is charged, and the server dies no more often, whatever the times
// and however many workers share it.
func TestC22WhateverTheTimes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dice := rand.New(rand.NewPCG(seed, 0))
				items := []int{dice.IntN(1000)}
				if dice.IntN(2) == 0 {
					items = append(items, items[0]+1+dice.IntN(50))
				}
				m := newCrashingEngine(items...)
				m.latency = time.Duration(1 + dice.IntN(4000*1e6))
				m.lives = time.Duration(1 + dice.IntN(3000*1e6))
				m.restarts = time.Duration(1 + dice.IntN(20000*1e6))
				m.silent, m.lonely = dice.IntN(2) == 0, dice.IntN(4) != 0
				w := newCrashFixture(t, m, 11)
				for range 1 + dice.IntN(4) {
					w.startWorkers()
				}
				w.wantPoison(w.until(3*time.Hour), items...)
				most := 4
				if !m.lonely || w.workers > 1 {
					most = 6
				}
				w.wantDeaths(most * len(items))
			})
		})
	}
}

// The engine lives in the worker's process: both die at once, and nobody
// learns why but by what the shard's document names.
func TestC22AnEngineThatTakesItsWorkerAlong(t *testing.T) {
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
				m.restarts, w.engine = 0, ""
				m.onDeath = func() {
					kill()
					time.AfterFunc(time.Second, func() { // restarted by its supervisor
						m.mu.Lock()
						m.down = false
						m.mu.Unlock()
						kill = w.startWorkers()
					})
				}
				kill = w.startWorkers()
				w.wantPoison(w.until(time.Hour), c.items...)
				w.wantDeaths(c.most)
			})
		})
	}
}

// Workers that are killed for reasons of their own, while they are busy with
// the one item that takes long, do not make poison of it.
func TestWorkersThatAreKilledWhileTheyAskOneItemBlameNobody(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]string{"in the worker": "", "a server": "server"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newCrashingEngine()
				m.slow = `"42"`
				w := newCrashFixture(t, m, 1)
				w.engine = engine
				for range 2 {
					kill := w.startWorkers()
					w.until(70 * time.Second) // all else is in a checkpoint
					kill()
				}
				for n := range 4 {
					kill := w.startWorkers()
					if d := w.until(30 * time.Second)[0]; !slices.Equal(d.OnProbation, []int{42}) || d.Crashes[42].Shared != n {
						t.Errorf("after %d that were killed the shard is %+v", n+2, d)
					}
					kill()
				}
				w.startWorkers()
				w.wantPoison(w.until(time.Hour))
			})
		})
	}
}

func TestAnItemOfManyDecodesIsQuarantinedAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 3
		w := newCrashFixture(t, newCrashingEngine(42), 1, func(m *record.Manifest) { m.Config.Sampling.N = &n })
		w.startWorkers()
		w.wantPoison(w.until(time.Hour), 42)
		w.wantDeaths(4)
	})
}

// While the engine is away nobody waits for ever: the shard goes back with
// what is known, and who comes next goes on from there.
func TestSuspicionOutlivesTheEngineAndTheWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newCrashingEngine(42)
		m.restarts = 0
		w := newCrashFixture(t, m, 1)
		kill := w.startWorkers()
		docs := w.until(8 * time.Second)
		if d := docs[0]; d.State != shard.Running || !d.Suspects.Has(42) || d.Suspects.Len() > 32 {
			t.Fatalf("while the engine is waited for the shard is %+v", d)
		}
		docs = w.until(20 * time.Second)
		if d := docs[0]; d.State != shard.Pending || !d.Suspects.Has(42) || d.Counts.Failed != 0 {
			t.Fatalf("when it stays away the shard is %+v", d)
		}
		suspects := docs[0].Suspects
		kill()
		m.mu.Lock()
		m.down, m.restarts = false, 3*time.Second
		asked := maps.Clone(m.asked)
		m.mu.Unlock()
		w.startWorkers()
		docs = w.until(time.Hour)
		w.wantPoison(docs, 42)
		w.wantDeaths(4)
		m.mu.Lock()
		defer m.mu.Unlock()
		for body, n := range m.asked {
			if strings.Contains(body, m.poison[0]) && n != 4 {
				t.Errorf("the poison was asked %d times", n)
			}
			if !strings.Contains(body, m.poison[0]) && n > asked[body]+3 {
				t.Errorf("%s was asked %d times, of %v suspects", body, n, suspects)
			}
		}
	})
}
