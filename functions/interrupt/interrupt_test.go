package interrupt_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/functions/interrupt"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

const instance = "i-0123456789abcdef0"

// newFixture returns stores with heartbeats, and their log: of w1, which has answered, and w2 on the
// instance, w3 on another one, w4 that has left the instance, and w5 outside of a
// cloud.
func newFixture(t *testing.T) (host.Ports, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	p := hosttest.New()
	p.Log = slog.New(slog.NewTextHandler(log, nil))
	for _, b := range []health.Heartbeat{
		{Worker: "w1", State: health.Ready, Instance: instance, Load: health.Load{Rows: 1}},
		{Worker: "w2", State: health.Draining, Instance: instance},
		{Worker: "w3", State: health.Ready, Instance: "i-0fffffffffffffff0"},
		{Worker: "w4", State: health.Gone, Instance: instance},
		{Worker: "w5", State: health.Ready},
	} {
		b.Schema = 1
		hosttest.Save(t, p, record.HeartbeatKey(b.Worker), b)
	}
	return p, log
}

// marked returns the workers that are marked to drain.
func marked(t *testing.T, p host.Ports) (workers []string) {
	t.Helper()
	for d, err := range document.All(t.Context(), p.Docs, "worker/") {
		var m record.WorkerMark
		if err != nil || record.Decode(d.Value, &m, d.Key) != nil {
			t.Fatalf("%s: %v", d.Key, err)
		}
		if m.DrainReason != "" {
			workers = append(workers, strings.TrimPrefix(d.Key, "worker/"))
		}
	}
	return workers
}

func TestNoticeMarksTheWorkersOfTheMachine(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	if _, err := p.Docs.Create(t.Context(), "beat/w0", []byte("of another version")); err != nil {
		t.Fatal(err)
	}
	if err := interrupter(p).Handle(t.Context(), stopping(instance, "spot interruption")); err != nil {
		t.Fatal(err)
	}
	if got := marked(t, p); !slices.Equal(got, []string{"w1", "w2"}) {
		t.Errorf("marked are %q", got)
	}
	m := hosttest.Load[record.WorkerMark](t, p, record.WorkerKey("w1"))
	if m.DrainReason != "spot interruption" || m.Sequence != 1 {
		t.Errorf("the mark is %+v", m)
	}
}

// EC2 recommends to leave many machines of a region at once, and most of them stay.
func TestRebalanceStormDrainsOnlyPoolsThatWantIt(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	for worker, pool := range map[string]string{"w1": "small", "w2": "eager", "w3": "eager"} {
		b := hosttest.Load[health.Heartbeat](t, p, record.HeartbeatKey(worker))
		b.Pool = pool
		hosttest.Save(t, p, record.HeartbeatKey(worker), b)
	}
	d := config.DefaultDeployment()
	d.Cloud.Name, d.Pools = "acme", []config.Pool{{Name: "small", Model: "m"}, {Name: "eager", Model: "n",
		PoolMachines: config.PoolMachines{DrainOnRebalance: true}}}
	i := interrupt.New(p, interrupt.Options{Deployment: d, FleetOf: fleetOf})
	for range 3 {
		for _, machine := range []string{instance, "i-0fffffffffffffff0", silent} {
			n := cloud.MachineNotice{Kind: cloud.MachineAtRisk, Machine: machine, Reason: "rebalance", At: time.Now()}
			if err := i.Handle(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := marked(t, p); !slices.Equal(got, []string{"w2", "w3"}) {
		t.Errorf("marked are %q, want the workers of the pool that drains on advice", got)
	}
	if _, err := p.Docs.Get(t.Context(), record.HeartbeatKey(silent)); err == nil {
		t.Error("a machine that stays and boots is recorded as ended")
	}
}

// Five notices at once make one mark, with the first reason. The other fields of
// the mark stay.
func TestSeveralNoticesMarkAWorkerOnce(t *testing.T) {
	t.Parallel()
	p, log := newFixture(t)
	failed := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosttest.Save(t, p, record.WorkerKey("w1"), record.WorkerMark{Schema: 1, Sequence: 7, Failed: failed})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if err := interrupter(p).Handle(t.Context(), stopping(instance, "spot interruption")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := interrupter(p).Handle(t.Context(), stopping(instance, "the instance is terminated")); err != nil {
		t.Error(err)
	}
	m := hosttest.Load[record.WorkerMark](t, p, record.WorkerKey("w1"))
	if m.Sequence != 8 || m.DrainReason != "spot interruption" || !m.Failed.Equal(failed) {
		t.Errorf("the mark is %+v", m)
	}
	if n := strings.Count(log.String(), "worker=w1"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

func TestNoticeOfMachineWithoutWorkersMarksNone(t *testing.T) {
	t.Parallel()
	p, log := newFixture(t)
	err := interrupter(p).Handle(t.Context(), stopping("i-00000000", "spot interruption"))
	if err != nil || len(marked(t, p)) != 0 || !strings.Contains(log.String(), "i-00000000") {
		t.Errorf("marked are %q, %v:\n%s", marked(t, p), err, log)
	}
	err = interrupter(p).Handle(t.Context(), stopping("", "spot interruption"))
	if !fault.Is(err, fault.Invalid) || len(marked(t, p)) != 0 {
		t.Errorf("without a machine: %v", err)
	}
}
