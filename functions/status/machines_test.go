package status_test

import (
	"slices"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/functions/status/statustest"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

func TestStatusShowsTheMachinesThatBoot(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	now := p.Clock.Now().UTC().Round(0)
	m := statustest.Manifest(runA)
	hosttest.Save(t, p, record.ManifestKey(runA), m)
	st := run.New(runA)
	st.Phase = run.Running
	hosttest.Save(t, p, record.CoordinatorKey(runA), st)
	hosttest.Save(t, p, record.FleetKey(m.Pool), record.Fleet{Schema: 1, Desired: 6, Present: 4, SeenAt: now})
	beat := func(name, pool string, state health.State, due time.Duration, stage health.BootStage) {
		b := health.Heartbeat{Schema: 1, Worker: name, Pool: pool, State: state, At: now, DueAt: now.Add(due), Instance: name}
		if stage != "" {
			b.Boot = &health.Boot{Stage: stage, Since: now.Add(-time.Minute)}
		}
		hosttest.Save(t, p, record.HeartbeatKey(name), b)
	}
	beat("i-1", m.Pool, health.Booting, time.Hour, health.BootImage)
	beat("i-2", m.Pool, health.Booting, time.Hour, health.BootModel)
	beat("i-3", m.Pool, health.Booting, -time.Hour, health.BootModel) // hangs, or is gone
	beat("i-4", "another", health.Booting, time.Hour, health.BootModel)
	beat("i-5", m.Pool, health.Gone, time.Hour, health.BootReady) // its worker:
	hosttest.Save(t, p, record.HeartbeatKey("w5"), health.Heartbeat{Schema: 1, Worker: "w5", Pool: m.Pool,
		State: health.Ready, At: now, DueAt: now.Add(time.Hour), Instance: "i-5"})
	for where, want := range map[string]int{"in a cloud": 1, "on one machine": 0} {
		profile := statustest.InCloud()
		profile.Capabilities.ManagedFleet = want > 0
		r := status.NewReader(p, config.DefaultDeployment(), profile)
		workers, err := r.Workers(t.Context())
		if err != nil || len(workers) != 1 || workers[0].Worker != "w5" {
			t.Errorf("%s: the workers are %+v, %v", where, workers, err)
		}
		progress, err := r.Progress(t.Context(), runA, workers)
		if err != nil || len(progress.Machines) != want {
			t.Fatalf("%s: %+v, %v", where, progress.Machines, err)
		}
		if want == 0 {
			continue
		}
		got := status.Of(progress, now).Machines[0]
		since := now.Add(-time.Minute)
		if got.Pool != m.Pool || got.Asked != 2 || got.Launching != 1 || !slices.Equal(got.Booting, []status.BootingMachine{
			{Machine: "i-1", Stage: health.BootImage, Since: since}, {Machine: "i-2", Stage: health.BootModel, Since: since}}) {
			t.Errorf("%s: %+v", where, got)
		}
	}
	st.Phase = run.Completed
	hosttest.Save(t, p, record.CoordinatorKey(runA), st)
	ended, err := status.NewReader(p, config.DefaultDeployment(), statustest.InCloud()).Progress(t.Context(), runA, nil)
	if err != nil || ended.Machines != nil {
		t.Errorf("of a run that has ended: %+v, %v", ended.Machines, err)
	}
}
