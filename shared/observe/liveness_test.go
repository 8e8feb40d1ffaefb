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

func TestLivenessCheckReturnsReasons(t *testing.T) {
	t.Parallel()
	beat := func(state string, away bool) observe.Event {
		return observe.WorkerHeartbeat{Worker: "w", Pool: "p", State: state, EngineAway: away}
	}
	const unregistered, away = "0 of 1 workers are registered", "the engine of pool p does not answer"
	for name, c := range map[string]struct {
		events []observe.Event
		after  time.Duration
		alive  bool
		why    []string
	}{
		"no heartbeat yet": {nil, time.Hour, true, []string{unregistered}},
		"ready":            {[]observe.Event{beat("init", false), beat("ready", false)}, time.Second, true, nil},
		"initializing":     {[]observe.Event{beat("init", false)}, 0, true, []string{away}},
		"engine away":      {[]observe.Event{beat("ready", true)}, 0, true, []string{away}},
		"draining": {[]observe.Event{beat("draining", false)}, 0, true,
			[]string{"a worker of pool p is draining"}},
		"overdue heartbeat": {[]observe.Event{beat("ready", false)}, 5 * time.Second, false,
			[]string{"a worker of pool p has not renewed its heartbeat for 5s"}},
		"deregistered": {[]observe.Event{beat("ready", false), observe.WorkerDeregistered{Worker: "w"}}, time.Hour, true,
			[]string{unregistered}},
		"fenced": {[]observe.Event{beat("ready", false), observe.WorkerFenced{Worker: "w"}}, time.Hour, true,
			[]string{unregistered}},
		"death of another worker": {[]observe.Event{beat("ready", false), observe.WorkerFailed{Worker: "x"}}, 0, true, nil},
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
