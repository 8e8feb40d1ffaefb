package process_test

import (
	"context"
	"testing"
	"time"

	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// rented is a machine of a cloud.
type rented struct {
	machine
	id string
}

func (r rented) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 4, GPUs: []capacity.GPU{}, Instance: r.id}, nil
}

// A machine has one heartbeat document, from its first stage to its end.
func TestMachineReportsItsBootAndItsEndOnce(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	m := rented{id: "i-0123456789abcdef0"}
	beats := func() (all []health.Heartbeat) {
		for d, err := range document.All(t.Context(), p.Docs, record.HeartbeatPrefix) {
			var b health.Heartbeat
			if err != nil || record.Decode(d.Value, &b, d.Key) != nil {
				t.Fatalf("%s: %v", d.Key, err)
			}
			all = append(all, b)
		}
		return all
	}
	for _, stage := range []health.BootStage{health.BootImage, health.BootModel} {
		if err := process.ReportBoot(t.Context(), p, m, "small", stage, 20*time.Minute); err != nil {
			t.Fatal(err)
		}
		all := beats()
		if len(all) != 1 || all[0].Worker != m.id || all[0].Instance != m.id || all[0].Pool != "small" ||
			all[0].State != health.Booting || all[0].Boot == nil || all[0].Boot.Stage != stage ||
			all[0].DueAt.Sub(all[0].At) != 35*time.Minute {
			t.Errorf("at stage %s: %+v", stage, all)
		}
	}
	if err := process.ReportUnusable(t.Context(), p, m, "small", "no engine"); err != nil {
		t.Fatal(err)
	}
	if all := beats(); len(all) != 1 || all[0].State != health.Gone || all[0].FailureReason != "no engine" ||
		all[0].Boot != nil {
		t.Errorf("after its end: %+v", all)
	}
	if err := process.ReportBoot(t.Context(), p, m, "small", health.BootReady, time.Minute); err != nil ||
		beats()[0].FailureReason == "" {
		t.Errorf("a late stage takes the place of the end: %v, %+v", err, beats())
	}
	err := process.ReportBoot(t.Context(), p, rented{}, "small", health.BootImage, time.Minute)
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a machine without a name: %v", err)
	}
}

// The end of a boot is that of the heartbeat, so that the machine is not taken for a worker.
func TestReadyMachineLeavesTheWordToItsWorkers(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	m := rented{id: "i-0123456789abcdef0"}
	for _, stage := range health.BootStages() {
		if err := process.ReportBoot(t.Context(), p, m, "small", stage, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	b := hosttest.Load[health.Heartbeat](t, p, record.HeartbeatKey(m.id))
	if b.State != health.Gone || b.Boot == nil || b.Boot.Stage != health.BootReady || b.FailureReason != "" {
		t.Errorf("%+v", b)
	}
}

// A machine that is taken back while it boots gives up, too: that counts as no failure of it.
func TestMachineThatIsTakenBackReportsNoFailure(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	m := rented{id: "i-0123456789abcdef0"}
	taken := health.Heartbeat{Schema: record.Schema, Worker: m.id, Pool: "small", State: health.Gone, Instance: m.id,
		TakenBack: "spot interruption"}
	hosttest.Save(t, p, record.HeartbeatKey(m.id), taken)
	if err := process.ReportUnusable(t.Context(), p, m, "small", "its server ended"); err != nil {
		t.Fatal(err)
	}
	docs, err := p.Docs.List(t.Context(), record.HeartbeatPrefix, "", 10)
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d heartbeats, %v", len(docs), err)
	}
	b := hosttest.Load[health.Heartbeat](t, p, record.HeartbeatKey(m.id))
	if b.TakenBack != taken.TakenBack || b.FailureReason != "" {
		t.Errorf("%+v", b)
	}
}
