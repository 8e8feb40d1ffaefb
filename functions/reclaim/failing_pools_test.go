package reclaim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// failure saves the failure report of machine n, of that age.
func (d fixture) failure(n int, age time.Duration) {
	at := time.Now().Add(-age)
	worker := fmt.Sprintf("w%d", n)
	d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "default", State: health.Gone,
		At: at, DueAt: at, Instance: fmt.Sprintf("i-%d", n), FailureReason: "no engine"})
}

// failures saves the reports of machines 1, 2, …, of these ages.
func (d fixture) failures(ages ...time.Duration) {
	for i, age := range ages {
		d.failure(i+1, age)
	}
}

// works saves the heartbeat, of that age, of a worker that has answered that many
// items.
func (d fixture) works(instance string, rows int64, age time.Duration) {
	at := time.Now().Add(-age)
	worker := "on-" + instance
	d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "default", State: health.Ready,
		At: at, DueAt: at.Add(20 * time.Second), Instance: instance, Load: health.Load{Rows: rows}})
}

// Otherwise a model that no engine can serve would start machine after machine,
// each of which costs money, for as long as the run is open.
func TestThreeFailedMachinesPauseTheRunsOfTheirPool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given  func(fixture)
		paused bool
		left   int // reports
	}{
		"two":   {func(d fixture) { d.failures(80*time.Minute, 40*time.Minute) }, false, 2},
		"three": {func(d fixture) { d.failures(80*time.Minute, 40*time.Minute, 0) }, true, 0},
		"eight at once": {func(d fixture) {
			for n := range 8 {
				d.failure(n, 0)
			}
		}, true, 0},
		"three over many hours": {func(d fixture) { d.failures(20*time.Hour, 10*time.Hour, 0) }, true, 0},
		"another machine works": {func(d fixture) {
			d.failures(80*time.Minute, 40*time.Minute, time.Minute)
			d.works("i-9", 7, 0)
		}, false, 0},
		"another machine worked in between": {func(d fixture) {
			d.failures(80*time.Minute, 40*time.Minute, time.Minute)
			d.works("i-9", 7, 10*time.Minute)
		}, false, 1},
		"another machine waits for its engine": {func(d fixture) {
			d.failures(80*time.Minute, 40*time.Minute, time.Minute)
			d.works("i-9", 0, 0)
		}, true, 0},
		"the last machine had worked": {func(d fixture) {
			d.failures(80*time.Minute, 40*time.Minute, time.Minute)
			d.works("i-3", 7, 0)
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.running(id, time.Now())
				d.submittedAgo(id, 30*time.Hour)
				c.given(d)
				needed := 0
				if err := ScanOnce(t.Context(), d.Ports, scheduled(func(string, scaling.Demand) { needed++ })); err != nil {
					t.Fatal(err)
				}
				paused := false
				for _, p := range d.received(host.CoordinateQueue) {
					if m, ok := p.(events.ModelMissing); ok {
						paused = true
						if m.Run != string(id) || !strings.Contains(m.Reason, "no engine") {
							t.Errorf("sent %+v", m)
						}
					}
				}
				if paused != c.paused || (needed == 0) != c.paused || d.reports() != c.left {
					t.Errorf("paused %v, asked for machines %d times, %d reports left", paused, needed, d.reports())
				}
			})
		})
	}
}

// The cloud reports a machine's end minutes after its failure report. The machine
// must still have a heartbeat then, but not for ever.
func TestHeartbeatOutlivesItsClearedFailureReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		for n := range 3 {
			d.failure(n, 0)
		}
		heartbeats := func() (n int) {
			if err := host.Each(t.Context(), d.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
				if b.State != health.Gone || b.Instance == "" {
					t.Errorf("%+v", b)
				}
				n++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if d.scan(); d.reports() != 0 || heartbeats() != 3 {
			t.Errorf("%d reports are left, of %d machines", d.reports(), heartbeats())
		}
		time.Sleep(health.HeartbeatRetention + time.Minute)
		if err := New(d.Ports, inCloud).Scan(t.Context()); err != nil || heartbeats() != 0 {
			t.Errorf("%d heartbeats are never deleted", heartbeats())
		}
	})
}

// submittedAgo sets when the run was submitted.
func (d fixture) submittedAgo(r identity.RunID, age time.Duration) {
	d.t.Helper()
	m := hosttest.Load[record.Manifest](d.t, d.Ports, record.ManifestKey(r))
	m.CreatedAt = time.Now().Add(-age)
	d.save(record.ManifestKey(r), m)
}

// reports counts the failure reports.
func (d fixture) reports() (n int) {
	d.t.Helper()
	if err := host.Each(d.t.Context(), d.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if b.FailureReason != "" {
			n++
		}
		return nil
	}); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// A new or resumed run starts to count again.
func TestFailuresBeforeARunDoNotPauseIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		for n := range 3 {
			d.failure(n, time.Hour/2)
		}
		d.running(id, time.Now())
		d.submittedAgo(id, time.Minute)
		if got := d.scan(); len(got) != 0 {
			t.Errorf("for a new run it sent %v", got)
		}
		d.running(id[:len(id)-1]+"A", time.Now(), func(s *run.State) { s.Phase = run.Paused })
		d.scan()
		if d.reports() != 3 {
			t.Error("reports that a running run may need are cleared")
		}
		doc, err := d.Docs.Get(t.Context(), record.CoordinatorKey(id))
		if err == nil {
			err = d.Docs.Delete(t.Context(), doc.Key, doc.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		d.scan()
		if d.reports() != 0 {
			t.Error("the reports of a pool without running runs are kept")
		}
	})
}

// A scan that could not notify coordinate leaves the reports to the next one.
func TestReportsAreKeptUntilCoordinateIsNotified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		for n := range 3 {
			d.failure(n, 0)
		}
		p := d.Ports
		p.Queues = failingQueues{p.Queues}
		if err := New(p, inCloud).Scan(t.Context()); !fault.Is(err, fault.Unavailable) || d.reports() != 3 {
			t.Errorf("%v, %d reports", err, d.reports())
		}
	})
}

// failingQueues cannot be sent to.
type failingQueues struct{ queue.Queues }

func (failingQueues) Send(context.Context, string, [][]byte, time.Duration) error {
	return fault.New(fault.Unavailable, "the queue is away")
}
