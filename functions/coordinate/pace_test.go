package coordinate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/coordinate"
	"rollout/shared/core/run"
)

// A store that takes one write a second to a document is never asked for more than
// ten in 10 seconds, whatever events come, and the run ends all the same.
func TestStateIsSavedAtMostAsOftenAsAllowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards, most = 40, 10
		d := newFixture(t, shards, 1)
		var saved []time.Time
		start := func() *coordinate.Coordinator {
			return newCoordinator(d.Ports, coordinate.Options{MostSaves: most, Hooks: coordinate.Hooks{
				OnSaved: func(run.State) { saved = append(saved, time.Now()) },
			}})
		}
		c := start()
		d.apply(c, look)
		for n := range shards {
			time.Sleep(300 * time.Millisecond)
			if n == shards/2 { // a restarted process does not know how often the last one saved
				c = start()
			}
			d.apply(c, done(n, 1))
		}
		if s := d.state(); s.Phase != run.Finalizing {
			t.Errorf("the run is %s", s.Phase)
		}
		for i := most; i < len(saved); i++ {
			if within := saved[i].Sub(saved[i-most]); within < 10*time.Second {
				t.Errorf("saves %d to %d took %s", i-most, i, within)
			}
		}
		if len(saved) < shards {
			t.Errorf("%d saves: the events were not steps of their own", len(saved))
		}
	})
}

// Events that change nothing are not held back.
func TestStepsThatSaveNothingDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 1)
		c := newCoordinator(d.Ports, coordinate.Options{MostSaves: 2})
		d.apply(c, look)
		began := time.Now()
		for range 20 {
			d.apply(c, look)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("events without news waited %s", waited)
		}
	})
}
