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

// many are so many coordinators that share their runs' events, as processes of
// a function do.
func (d fixture) many(n int) (cs []*coordinate.Coordinator) {
	for range n {
		cs = append(cs, d.coordinator().AmongMany())
	}
	return cs
}

// Whoever takes the next events of a run did not send what the last ones had
// sent, and does not send it again.
func TestEffectsArePerformedOnceByManyCoordinators(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards = 300
		d := newFixture(t, shards, 1)
		cs := d.many(3)
		d.tell(cs[0], look)
		sent := map[int]int{}
		count := func() {
			for _, p := range d.received(work) {
				sent[p.(events.Work).Shard]++
			}
		}
		for n := range shards {
			time.Sleep(50 * time.Millisecond)
			d.tell(cs[n%3], done(n, 1))
			count()
		}
		for n := range shards {
			if sent[n] != 1 {
				t.Errorf("shard %d is sent %d times", n, sent[n])
			}
		}
		d.tell(d.coordinator().AmongMany(), done(0, 1)) // a process that starts with old news
		if got := d.received(host.TaskQueue); len(got) != 1 {
			t.Errorf("finalize is asked for by %v", got)
		}
		if s := d.state(); s.Phase != run.Finalizing || s.Steps > shards+3 {
			t.Errorf("the run is %s after %d steps", s.Phase, s.Steps)
		}
	})
}

// Who saved the state and died before its effects were performed is waited for
// as long as that may take, and no longer.
func TestEffectsOfADeadCoordinatorArePerformedByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 2)
		broken := d.Ports
		broken.Queues = deaf{d.Queues}
		if left := d.tell(d.over(broken).AmongMany(), look); left != 1 {
			t.Fatalf("%d events are left", left)
		}
		if s := d.state(); len(s.Effects) == 0 {
			t.Fatal("no effects are saved")
		}
		began := time.Now()
		d.tell(d.coordinator().AmongMany(), look)
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

// While one performs the effects of its step, the events that another takes
// wait for that.
func TestEffectsThatAreBeingPerformedAreLeftToWhoeverDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 2)
		slow := d.Ports
		slow.Queues = late{d.Queues}
		var all sync.WaitGroup
		d.send(look)
		all.Go(func() { d.batch(d.over(slow).AmongMany()) })
		time.Sleep(100 * time.Millisecond)
		d.tell(d.coordinator().AmongMany(), look)
		all.Wait()
		if n := len(d.received(work)); n != 3 {
			t.Errorf("%d messages are sent for 3 shards", n)
		}
	})
}

// late are queues that take a second.
type late struct{ queue.Queues }

func (q late) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	time.Sleep(time.Second)
	return q.Queues.Send(ctx, name, bodies, delay)
}
