package coordinate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// deployed are the queues of a stack: those of a pool that is not in its config
// are gone.
type deployed struct {
	queue.Queues
	gone *string
}

func (q deployed) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if *q.gone != "" && (name == host.WorkQueue(*q.gone) || name == host.UrgentQueue(*q.gone)) {
		return fault.New(fault.NotFound, "there is no queue %s", name)
	}
	return q.Queues.Send(ctx, name, bodies, delay)
}

// Whoever takes a pool out of the config and deploys it, with a run open, is told
// what to do, and may do either: end the run, or go on with the pool.
func TestARunWhosePoolIsGonePausesAndSaysWhy(t *testing.T) {
	t.Parallel()
	for what, answers := range map[string]string{"end": "stop it", "go on": "deploy the pool again"} {
		t.Run(answers, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, 3, 2)
			gone := "default"
			p := d.Ports
			p.Queues = deployed{d.Queues, &gone}
			other, both := []config.Pool{{Name: "other"}}, []config.Pool{{Name: "other"}, {Name: "default"}}
			c := d.over(p).Serving(other)
			if left := d.tell(c, look); left != 0 {
				t.Errorf("%d events come back", left)
			}
			if got := d.control(); got.Desired != record.DesiredPause || !strings.Contains(got.Reason, "no pool default") {
				t.Errorf("control says %+v", got)
			}
			steer := func(want record.Desired) {
				ctl := d.control()
				ctl.Sequence, ctl.Desired, ctl.Reason = ctl.Sequence+1, want, ""
				if _, err := host.Update(t.Context(), d.Docs, record.ControlKey(id), func(record.Control, bool) (record.Control, bool, error) {
					return ctl, true, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			if what == "end" {
				steer(record.DesiredEnd)
				if left := d.tell(c, events.ControlChanged{Run: string(id)}); left != 0 || d.state().Phase != run.Ending && d.state().Phase != run.Finalizing {
					t.Errorf("%d events come back, the run is %s", left, d.state().Phase)
				}
				return
			}
			steer(record.DesiredRun)
			gone = ""
			if left := d.tell(d.over(p).Serving(both), events.ControlChanged{Run: string(id)}); left != 0 || len(d.received(work))+len(d.received(host.UrgentQueue("default"))) != 3 {
				t.Errorf("%d events come back, and not all work was sent", left)
			}
		})
	}
}
