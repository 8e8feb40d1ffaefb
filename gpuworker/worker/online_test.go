package worker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// startOnline runs a worker with that many slots for online requests.
func (d *limited) startOnline(slots, queue int, edit ...func(*worker.Config)) *runningWorker {
	d.t.Helper()
	w := d.start("w", d.of("w"), append(edit, func(c *worker.Config) {
		c.InFlight, c.Engine = slots, "e"
		c.Online = worker.Online{Share: 1, Queue: queue, Socket: "s"}
	})...)
	synctest.Wait()
	return w
}

// acquireLater asks for a slot. The request has it, or waits, when acquireLater returns.
func (d *limited) acquireLater(w *runningWorker) (slot <-chan *worker.OnlineSlot, failed <-chan error) {
	got, errs := make(chan *worker.OnlineSlot, 1), make(chan error, 1)
	go func() {
		s, err := w.AcquireOnline(d.t.Context(), time.Hour, worker.Cost{})
		if err != nil {
			errs <- err
		} else {
			got <- s
		}
	}()
	synctest.Wait()
	return got, errs
}

func TestOnlineQueueIsBoundedUnderALimitToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &limited{fixture: newFixture(t, 1, 1)}
		w := d.startOnline(8, 1, limitedTo(60))
		waits, _ := d.acquireLater(w)
		for len(waits) > 0 {
			(<-waits).Release()
			waits, _ = d.acquireLater(w)
		}
		if _, err := w.AcquireOnline(t.Context(), time.Hour, worker.Cost{}); !fault.Is(err, fault.Throttled) {
			t.Errorf("a second request that would wait for the limit gets %v", err)
		}
		(<-waits).Release()
	})
}

// Whoever gave a request to the worker looked for probation before the wait, not after it.
func TestOnlineRequestThatWaitedIsNotBesideAProbation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &limited{fixture: newFixture(t, 1, 1)}
		w := d.startOnline(1, 4)
		first, _ := d.acquireLater(w)
		_, refused := d.acquireLater(w)
		other := health.Heartbeat{Schema: record.Schema, Worker: "other", Pool: "default", State: health.Ready,
			DueAt: time.Now().Add(time.Hour), ProbationEngine: "e"}
		hosttest.Save(t, d.Ports, record.HeartbeatKey(other.Worker), other)
		slot := <-first
		slot.Release()
		if err := <-refused; !fault.Is(err, fault.Unavailable) {
			t.Errorf("during the probation it gets %v", err)
		}
		first, _ = d.acquireLater(w) // its slot is free again
		later, _ := d.acquireLater(w)
		other.ProbationEngine = ""
		hosttest.Save(t, d.Ports, record.HeartbeatKey(other.Worker), other)
		(<-first).Release()
		(<-later).Release()
	})
}
