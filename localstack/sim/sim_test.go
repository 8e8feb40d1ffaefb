package sim

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var (
	seedFlag  = flag.Int64("seed", -1, "replay this seed and print its trace")
	seedsFlag = flag.Int("seeds", 2000, "how many seeds to simulate")
)

// TestSimulation checks I1 to I11 in many worlds. A failure names its seed;
// -seed replays it.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *seedFlag >= 0 {
		simulate(t, uint64(*seedFlag), true)
		return
	}
	const lanes = 8
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			for seed := lane; seed < *seedsFlag && !t.Failed(); seed += lanes {
				simulate(t, uint64(seed), false)
			}
		})
	}
}

// simulate runs one world to its end. The trace of a failure is always told.
func simulate(t *testing.T, seed uint64, tell bool) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		w := newWorld(t, seed)
		defer func() {
			if tell || t.Failed() {
				t.Logf("seed %d (replay with -seed %d)\n%s", seed, seed, w.trace.String())
			}
		}()
		s := w.write()
		s.submit(ctx)
		for i := range 1 + w.dice.below("controls", 2) {
			go w.control(ctx, fmt.Sprintf("control%d", i))
		}
		for i := range 1 + w.dice.below("workers", 4) {
			go w.worker(ctx, fmt.Sprintf("worker%d", i))
		}
		go s.act(ctx)
		go s.nag(ctx)
		st := s.awaitEnd(ctx)
		end()
		synctest.Wait()
		if st.Phase.Ended() {
			s.check(t.Context(), st)
		}
	})
}
