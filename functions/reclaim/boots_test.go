package reclaim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// scanBoots scans as a function does, and returns what is known of the pool's boots.
func (d fixture) scanBoots() scaling.Boots {
	d.t.Helper()
	o := scheduled(func(string, scaling.Demand) {})
	o.BootPause, o.LongestBoots = time.Minute, map[string]time.Duration{"default": 20 * time.Minute}
	if err := ScanOnce(d.t.Context(), d.Ports, o); err != nil {
		d.t.Fatal(err)
	}
	var f record.Fleet
	if _, _, err := host.Load(d.t.Context(), d.Docs, record.FleetKey("default"), &f); err != nil {
		d.t.Fatal(err)
	}
	return f.Boots
}

// paused reports whether the scans so far asked for a pause.
func (d fixture) paused() bool {
	return slices.ContainsFunc(d.received(host.CoordinateQueue), func(p events.Payload) bool {
		_, ok := p.(events.ModelMissing)
		return ok
	})
}

// takenBack saves the record of a machine that its provider took back while it booted.
func (d fixture) takenBack(machine string) {
	now := time.Now()
	hosttest.Save(d.t, d.Ports, record.HeartbeatKey(machine), health.Heartbeat{Schema: 1, Worker: machine,
		Pool: "default", State: health.Gone, At: now, DueAt: now, Instance: machine, TakenBack: "spot interruption"})
}

func TestFailedBootsAreCountedOnceAndForgottenWhenAMachineAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		d.failure(1, 0)
		first := time.Now()
		for range 3 {
			if b := d.scanBoots(); b.Failures != 1 || !b.RetryAt.Equal(first.Add(time.Minute)) || b.Reason != "i-1: no engine" {
				t.Fatalf("after one failure: %+v", b)
			}
			time.Sleep(10 * time.Second)
		}
		time.Sleep(10 * time.Minute)
		d.takenBack("i-2")
		second := time.Now()
		if b := d.scanBoots(); b.Failures != 2 || !b.RetryAt.Equal(second.Add(2*time.Minute)) ||
			b.Reason != "i-2: the provider took it back before it answered anything: spot interruption" {
			t.Errorf("after a spot notice while it boots: %+v", b)
		}
		time.Sleep(time.Minute)
		now := time.Now()
		worker := health.Heartbeat{Schema: 1, Worker: "w9", Pool: "default", State: health.Ready, Instance: "i-9", At: now,
			DueAt: now.Add(time.Hour), Started: first.Add(-time.Hour), Load: health.Load{Rows: 5}}
		d.save(record.HeartbeatKey("w9"), worker)
		if b := d.scanBoots(); b.Failures != 2 {
			t.Errorf("a machine that booted before answers: %+v", b)
		}
		worker.Started = now
		d.save(record.HeartbeatKey("w9"), worker)
		if b := d.scanBoots(); b.Failures != 0 || b.Waits(time.Now()) {
			t.Errorf("after a good boot: %+v", b)
		}
	})
}

// A machine that boots is not a worker: it is never dead, answers nothing, and is forgotten later.
func TestMachinesThatBootAreNotWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		now := time.Now()
		d.save(record.HeartbeatKey("i-7"), health.Heartbeat{Schema: 1, Worker: "i-7", Pool: "default", Instance: "i-7",
			State: health.Booting, At: now, DueAt: now.Add(30 * time.Minute), Started: now,
			Boot: &health.Boot{Stage: health.BootModel, Since: now}})
		exists := func(key string) bool {
			_, err := d.Docs.Get(t.Context(), key)
			return err == nil
		}
		machines := -1
		o := scheduled(func(_ string, n scaling.Demand) { machines = n.LiveMachines })
		for _, after := range []time.Duration{0, 35 * time.Minute, 40 * time.Minute} {
			time.Sleep(after)
			if err := ScanOnce(t.Context(), d.Ports, o); err != nil || machines != 0 || exists(record.WorkerKey("i-7")) {
				t.Errorf("after %s: %v, %d machines work, marked as dead: %v", time.Since(now), err, machines,
					exists(record.WorkerKey("i-7")))
			}
			if !exists(record.HeartbeatKey("i-7")) {
				t.Errorf("after %s it is forgotten", time.Since(now))
			}
		}
		time.Sleep(time.Hour)
		if err := ScanOnce(t.Context(), d.Ports, o); err != nil || exists(record.HeartbeatKey("i-7")) {
			t.Errorf("it is never forgotten: %v", err)
		}
	})
}

// People decide when the runs go on: then a machine is asked for at once.
func TestPausedRunsForgiveFailedBoots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		d.failures(20*time.Minute, 10*time.Minute, 0)
		if b := d.scanBoots(); b.Failures != 0 || b.Waits(time.Now()) || !d.paused() {
			t.Errorf("%+v, or the run is not paused", b)
		}
	})
}

// A spot market that takes every machine back does not pause the runs of a pool.
func TestMachinesThatAreTakenBackPauseNoRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		for _, machine := range []string{"i-1", "i-2", "i-3", "i-4"} {
			time.Sleep(15 * time.Minute)
			d.takenBack(machine)
			d.scanBoots()
		}
		if b := d.scanBoots(); b.Failures != 4 || d.paused() {
			t.Errorf("%+v, or the run is paused", b)
		}
	})
}

// A worker processes untrusted prompts, and may write any heartbeat.
func TestForgedHeartbeatsStopNoPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		now := time.Now()
		lock := record.FleetKey("default") + "/groups"
		d.save(lock, map[string]string{"holder": "another"})
		for i, b := range []health.Heartbeat{
			{Pool: "default", At: now.AddDate(70, 0, 0)},
			{Pool: "default", At: now, Started: now.AddDate(70, 0, 0)},
			{Pool: "default/groups", At: now},
			{Pool: "a pool", At: now},
			{Pool: "other", At: now},
		} {
			b.Schema, b.Worker, b.State, b.DueAt, b.FailureReason = 1, "f"+string(rune('0'+i)), health.Gone, now, "forged"
			d.save(record.HeartbeatKey(b.Worker), b)
		}
		if b := d.scanBoots(); b != (scaling.Boots{}) {
			t.Errorf("forged heartbeats count: %+v", b)
		}
		docs, err := d.Docs.List(t.Context(), "fleet/", "", 10)
		if err != nil || len(docs) != 1 || !strings.Contains(string(docs[0].Value), "another") {
			t.Errorf("the documents of fleets are %s, %v", docs, err)
		}
	})
}

// fleetless is the documents of a deployment that may not write those of fleets.
type fleetless struct{ document.Store }

func (s fleetless) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if strings.HasPrefix(key, "fleet/") {
		return "", fault.New(fault.Denied, "no right to write %s", key)
	}
	return s.Store.Create(ctx, key, value)
}

// A report of a machine must not fail each scan for as long as it is kept.
func TestDeploymentWithoutMachinesCountsNoBoots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.submittedAgo(id, time.Hour)
		d.failure(1, 0)
		d.Ports.Docs = fleetless{d.Ports.Docs}
		if b := d.scanBoots(); b != (scaling.Boots{}) {
			t.Errorf("it counts %+v", b)
		}
	})
}
