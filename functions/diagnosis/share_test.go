package diagnosis_test

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/diagnosis"
	"rollout/functions/status/statustest"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/share"
)

func TestSharedPoolIsToldWithTheRequestsOfTheRun(t *testing.T) {
	t.Parallel()
	const later = 2 * time.Minute
	for name, c := range map[string]struct {
		own, all  int // requests in flight
		priority  float64
		want, not string
	}{
		"most of the pool": {own: 58, all: 64, priority: 40,
			want: "its part is 91% of the requests, as its weight is 40 of 44 (priority high)", not: "pause others"},
		"its turn has not come": {own: 0, all: 64, priority: 40,
			want: "it has 0 of 64 requests now, and gets more as those of the others end", not: "stalled"},
		"an equal part":    {own: 32, all: 64, priority: 4, want: "wait, or pause others", not: "requests now"},
		"nothing is asked": {own: 0, all: 0, priority: 4, want: "wait, or pause others", not: "requests now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := statustest.Midway()
			weight := config.Priority(c.priority)
			p.Manifest.Config.Scheduling.Priority = &weight
			d, _ := share.Doc{}.With(p.Manifest.Part())
			d, _ = d.With(share.Run{Run: statustest.RunB, Weight: 4})
			p.Shares = map[string]share.Doc{"default": d}
			w := &p.Workers[0]
			w.Holds = append(w.Holds, health.HeldShard{Run: statustest.RunB, Shard: 1})
			w.Load = health.Load{InFlight: c.all, Runs: []health.RunLoad{
				{Run: statustest.RunA, InFlight: c.own, RowAt: statustest.Noon},
				{Run: statustest.RunB, InFlight: c.all - c.own, RowAt: statustest.Noon}}}
			var text string
			for _, b := range diagnosis.StatusOf(p, statustest.Noon.Add(later)).Blockers {
				text += b.Text + " (" + b.Remedy + ")\n"
			}
			if !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
				t.Errorf("want %q without %q in:\n%s", c.want, c.not, text)
			}
		})
	}
}
