package sim

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var (
	seedFlag  = flag.Int64("seed", -1, "replay this seed and print its trace")
	seedsFlag = flag.Int("seeds", 2000, "how many seeds to simulate")
	httpFlag  = flag.Bool("http", false, "give every world inference servers behind the real client")
	shareFlag = flag.Bool("shared", false, "have five runs share the pool wherever they may")
	rollFlag  = flag.Bool("rollouts", false, "make every run a rollout")
	fromFlag  = flag.Int("from", 0, "the first seed of -seeds")
)

// TestSimulation checks I1 to I11 in many simulations. A failure names its seed,
// which -seed replays.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *seedFlag >= 0 {
		simulate(t, uint64(*seedFlag), true)
		return
	}
	const lanes = 8
	var failed atomic.Bool // the first failure ends all lanes
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			for seed := lane; seed < *seedsFlag && !failed.Load(); seed += lanes {
				simulate(t, uint64(*fromFlag+seed), false)
				if t.Failed() {
					failed.Store(true)
				}
			}
		})
	}
}

// simulate runs one simulation to its end. It prints the trace of a failure, and
// with showTrace any trace.
func simulate(t *testing.T, seed uint64, showTrace bool) {
	var facts []runFacts
	defer func() {
		for _, f := range facts {
			if err := f.check(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		w := newWorld(t, seed, *httpFlag, *rollFlag, *shareFlag)
		defer func() {
			if showTrace || t.Failed() {
				t.Logf("seed %d (replay with -seed %d -http=%v -rollouts=%v -shared=%v)\n%s",
					seed, seed, *httpFlag, *rollFlag, *shareFlag, w.trace.String())
			}
		}()
		s := w.write()
		s.submit(ctx)
		var all sync.WaitGroup
		for i := range 1 + w.rand.intN("controls", 2) {
			all.Go(func() { w.runFunctions(ctx, fmt.Sprintf("control%d", i)) })
		}
		for i := range 1 + w.rand.intN("workers", 4) {
			all.Go(func() { w.runWorkers(ctx, "default", fmt.Sprintf("worker%d", i)) })
		}
		if w.hasJudges() {
			for i := range 1 + w.rand.intN("judges", 2) {
				all.Go(func() { w.runWorkers(ctx, judges, fmt.Sprintf("judge%d", i)) })
			}
		}
		disturb := func() {
			id, a := s.id, s.action
			all.Go(func() { s.act(ctx, id, a) })
			all.Go(func() { s.prune(ctx, id) })
			all.Go(func() { s.mend(ctx, id) })
			all.Go(func() { s.steal(ctx, id) })
			all.Go(func() { s.sendSpuriousHints(ctx, id) })
		}
		disturb()
		lived := make(chan struct{})
		go func() {
			defer close(lived)
			w.liveAll(ctx)
		}()
		st := s.awaitEnd(ctx)
		for range s.retries() {
			if !st.Phase.Ended() {
				break
			}
			s.awaitFreed(ctx)
			s.check(ctx, st)
			if !s.retry(ctx) {
				break
			}
			disturb()
			st = s.awaitEnd(ctx)
		}
		<-lived
		if st.Phase.Ended() {
			s.awaitFreed(ctx)
		}
		end()
		all.Wait() // ending processes release what they hold
		if st.Phase.Ended() {
			s.freeAll(t.Context())
			s.check(t.Context(), st)
			w.checkNeighbours(t.Context())
			w.checkLimit()
			w.checkMachines()
			w.http.checkBounds()
			s.expire(t.Context())
		}
		facts = s.facts
	})
}
