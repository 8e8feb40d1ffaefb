package coordinate_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// The process that handles the next events of a run does not repeat the effects
// that another process has performed.
func TestSharedCoordinatorsPerformEffectsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards = 300
		d := newFixture(t, shards, 1)
		cs := []*coordinate.Coordinator{d.shared(), d.shared(), d.shared()}
		d.apply(cs[0], look)
		sent := map[int]int{}
		count := func() {
			for _, p := range d.received(work) {
				sent[p.(events.Work).Shard]++
			}
		}
		for n := range shards {
			time.Sleep(50 * time.Millisecond)
			d.apply(cs[n%3], done(n, 1))
			count()
		}
		for n := range shards {
			if sent[n] != 1 {
				t.Errorf("shard %d is sent %d times", n, sent[n])
			}
		}
		d.apply(d.shared(), done(0, 1)) // a new process, with a repeated event
		if got := d.received(host.TaskQueue); len(got) != 1 {
			t.Errorf("finalize is asked for by %v", got)
		}
		if s := d.state(); s.Phase != run.Finalizing || s.Steps > shards+3 {
			t.Errorf("the run is %s after %d steps", s.Phase, s.Steps)
		}
	})
}

// After a crash between save and perform, another process waits for peerTimeout
// and then performs the effects.
func TestEffectsOfCrashedCoordinatorArePerformedByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 2)
		broken := d.Ports
		broken.Queues = failingQueues{d.Queues}
		if left := d.apply(newCoordinator(broken, coordinate.Options{Shared: true}), look); left != 1 {
			t.Fatalf("%d events are left", left)
		}
		if s := d.state(); len(s.Effects) == 0 {
			t.Fatal("no effects are saved")
		}
		began := time.Now()
		d.apply(d.shared(), look)
		if n := len(d.received(work)); n != 3 {
			t.Errorf("%d shards are sent", n)
		}
		if took := time.Since(began); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("it took %s", took)
		}
		if s := d.state(); len(s.Effects) != 0 {
			t.Errorf("left are the effects %+v", s.Effects)
		}
	})
}

// While one process performs the effects of its step, another process waits
// before it handles its events.
func TestEffectsBeingPerformedAreNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 2)
		slow := d.Ports
		slow.Queues = slowQueues{d.Queues}
		var all sync.WaitGroup
		d.send(look)
		all.Go(func() { d.batch(newCoordinator(slow, coordinate.Options{Shared: true})) })
		time.Sleep(100 * time.Millisecond)
		d.apply(d.shared(), look)
		all.Wait()
		if n := len(d.received(work)); n != 3 {
			t.Errorf("%d messages are sent for 3 shards", n)
		}
	})
}

// slowQueues take a second to send.
type slowQueues struct{ queue.Queues }

func (q slowQueues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	time.Sleep(time.Second)
	return q.Queues.Send(ctx, name, bodies, delay)
}
