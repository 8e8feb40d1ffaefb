package observe_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/observe"
)

type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }

func TestAPulseTellsWhyAProcessCantWork(t *testing.T) {
	t.Parallel()
	beat := func(state string, away bool) observe.Event {
		return observe.WorkerHeartbeat{Worker: "w", Pool: "p", State: state, EngineAway: away}
	}
	for name, c := range map[string]struct {
		events []observe.Event
		after  time.Duration
		alive  bool
		why    []string
	}{
		"nothing yet":         {nil, time.Hour, true, []string{"0 of 1 workers are registered"}},
		"it works":            {[]observe.Event{beat("init", false), beat("ready", false)}, time.Second, true, nil},
		"it starts":           {[]observe.Event{beat("init", false)}, 0, true, []string{"the engine of pool p can't answer"}},
		"its engine is away":  {[]observe.Event{beat("ready", true)}, 0, true, []string{"the engine of pool p can't answer"}},
		"it drains":           {[]observe.Event{beat("draining", false)}, 0, true, []string{"a worker of pool p is on its way out"}},
		"it is silent":        {[]observe.Event{beat("ready", false)}, 5 * time.Second, false, []string{"a worker of pool p has not renewed its heartbeat for 5s"}},
		"it is gone":          {[]observe.Event{beat("ready", false), observe.WorkerDeregistered{Worker: "w"}}, time.Hour, true, []string{"0 of 1 workers are registered"}},
		"it is fenced":        {[]observe.Event{beat("ready", false), observe.WorkerFenced{Worker: "w"}}, time.Hour, true, []string{"0 of 1 workers are registered"}},
		"another one's death": {[]observe.Event{beat("ready", false), observe.WorkerFailed{Worker: "x"}}, 0, true, nil},
	} {
		clock := &setClock{time.Unix(1000, 0)}
		w := observe.Observer{Liveness: observe.NewLiveness(clock, 4*time.Second, 1)}
		for _, e := range c.events {
			w.Record(t.Context(), slog.New(slog.DiscardHandler), e)
		}
		clock.now = clock.now.Add(c.after)
		if alive, why := w.Liveness.Check(); alive != c.alive || !cmp.Equal(why, c.why) {
			t.Errorf("%s: alive %v, %q; want %v, %q", name, alive, why, c.alive, c.why)
		}
	}
}
