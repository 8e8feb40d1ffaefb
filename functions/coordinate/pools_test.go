package coordinate_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// deployedQueues are the queues of a deployment: those of the missing pool do
// not exist.
type deployedQueues struct {
	queue.Queues
	missing *string
}

func (q deployedQueues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if *q.missing != "" && (name == host.WorkQueue(*q.missing) || name == host.UrgentQueue(*q.missing)) {
		return fault.New(fault.NotFound, "there is no queue %s", name)
	}
	return q.Queues.Send(ctx, name, bodies, delay)
}

// A run whose pool was removed from the config pauses and names the remedies: end
// the run, or deploy the pool again and resume.
func TestRunOfRemovedPoolPausesAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]bool{"end": true, "resume with the pool": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, 3, 2)
			missing := "default"
			p := d.Ports
			p.Queues = deployedQueues{d.Queues, &missing}
			c := newCoordinator(p, coordinate.Options{Pools: []config.Pool{{Name: "other"}}})
			if left := d.apply(c, look); left != 0 {
				t.Errorf("%d events are left", left)
			}
			if got := d.control(); got.Desired != record.DesiredPause || !strings.Contains(got.Reason, "no pool default") {
				t.Errorf("control is %+v", got)
			}
			steer := func(want record.Desired) {
				ctl := d.control()
				ctl.Sequence, ctl.Desired, ctl.Reason = ctl.Sequence+1, want, ""
				change := func(record.Control, bool) (record.Control, bool, error) { return ctl, true, nil }
				if _, err := host.Update(t.Context(), d.Docs, record.ControlKey(id), change); err != nil {
					t.Fatal(err)
				}
			}
			changed := events.ControlChanged{Run: string(id)}
			if end {
				steer(record.DesiredEnd)
				left := d.apply(c, changed)
				if ph := d.state().Phase; left != 0 || ph != run.Ending && ph != run.Finalizing {
					t.Errorf("%d events are left, the run is %s", left, ph)
				}
				return
			}
			steer(record.DesiredRun)
			missing = ""
			c = newCoordinator(p, coordinate.Options{Pools: []config.Pool{{Name: "other"}, {Name: "default"}}})
			left := d.apply(c, changed)
			if sent := len(d.received(work)) + len(d.received(host.UrgentQueue("default"))); left != 0 || sent != 3 {
				t.Errorf("%d events are left, %d shards are sent", left, sent)
			}
		})
	}
}
