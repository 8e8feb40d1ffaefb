package interrupt_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
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

// silent is a machine of the pool small that never had a worker.
const silent = "i-0aaaaaaaaaaaaaaa0"

// working is a machine of the pool small that tests give workers.
const working = "i-0ddddddddddddddd0"

// fleetOf knows the fleet of three machines.
func fleetOf(_ context.Context, machine string) (string, error) {
	if machine != silent && machine != instance && machine != working {
		return "", fault.New(fault.NotFound, "in no fleet")
	}
	return "acme-small", nil
}

// interrupter acts on notices about the fleet of the pool small.
func interrupter(p host.Ports) *interrupt.Interrupter { return interrupterWith(p, fleetOf) }

func interrupterWith(p host.Ports, fleetOf func(context.Context, string) (string, error)) *interrupt.Interrupter {
	d := config.DefaultDeployment()
	d.Cloud.Name, d.Pools = "acme", []config.Pool{{Name: "small", Model: "m"}}
	hints := cloud.OneMachine().Hints
	hints.ConsoleOutput = func(machine string) string { return "show the console of " + machine }
	return interrupt.New(p, interrupt.Options{Deployment: d, Hints: hints, FleetOf: fleetOf})
}

func preempted(machine, reason string) cloud.MachineNotice {
	return cloud.MachineNotice{Kind: cloud.MachinePreempted, Machine: machine, Reason: reason, At: time.Now()}
}

func stopping(machine, reason string) cloud.MachineNotice {
	return cloud.MachineNotice{Kind: cloud.MachineStopping, Machine: machine, Reason: reason, At: time.Now()}
}

// failures are the failure reports of machines.
func failures(t *testing.T, p host.Ports) (reports []health.Heartbeat) {
	t.Helper()
	for d, err := range document.All(t.Context(), p.Docs, record.HeartbeatPrefix) {
		var b health.Heartbeat
		if err != nil || record.Decode(d.Value, &b, d.Key) != nil {
			t.Fatalf("%s: %v", d.Key, err)
		}
		if b.FailureReason != "" {
			reports = append(reports, b)
		}
	}
	return reports
}

func terminated(machine string, ago time.Duration) cloud.MachineNotice {
	return cloud.MachineNotice{
		Kind: cloud.MachineTerminated, Machine: machine, Fleet: "acme-small", Reason: "user request.",
		At: time.Now().Add(-ago),
	}
}

func TestMachineThatEndsBeforeAnyHeartbeatIsAFailedBoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newFixture(t)
		for range 3 { // events come more than once
			if err := interrupter(p).Handle(t.Context(), terminated(silent, time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		got := failures(t, p)
		if len(got) != 1 {
			t.Fatalf("%d failure reports, want 1", len(got))
		}
		b := got[0]
		if b.Pool != "small" || b.Instance != silent || b.State != health.Gone || !b.At.Equal(time.Now()) ||
			!strings.Contains(b.FailureReason, "show the console of "+silent) ||
			!strings.Contains(b.FailureReason, "user request") {
			t.Errorf("the failure report is %+v", b)
		}
	})
}

func TestMachineWithHeartbeatsIsNoFailedBoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := "i-0bbbbbbbbbbbbbbb0"
		for name, c := range map[string]struct {
			of    cloud.MachineNotice
			given func(*interrupt.Interrupter) error
		}{
			"its workers are alive": {terminated(instance, 0), nil},
			"its worker has left":   {terminated(gone, 0), nil},
			"it was preempted before": {terminated(silent, 0), func(i *interrupt.Interrupter) error {
				return i.Handle(t.Context(), preempted(silent, "spot interruption"))
			}},
			// The heartbeats of its workers may have been deleted by now.
			"the notice is old":             {terminated(silent, health.HeartbeatRetention), nil},
			"the notice is from the future": {terminated(silent, -24*time.Hour), nil},
		} {
			p, _ := newFixture(t)
			hosttest.Save(t, p, record.HeartbeatKey("w6"),
				health.Heartbeat{Schema: 1, Worker: "w6", State: health.Gone, Instance: gone})
			i := interrupter(p)
			if c.given != nil {
				if err := c.given(i); err != nil {
					t.Fatal(err)
				}
			}
			if err := i.Handle(t.Context(), c.of); err != nil || len(failures(t, p)) > 0 {
				t.Errorf("%s: %v, %v", name, failures(t, p), err)
			}
		}
	})
}

func TestPreemptionBeforeAnyHeartbeatIsNotRecordedAsFailure(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	i := interrupter(p)
	for _, machine := range []string{silent, silent, instance, "i-0ccccccccccccccc0"} {
		if err := i.Handle(t.Context(), preempted(machine, "spot interruption")); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(marked(t, p), " "); got != "w1 w2" {
		t.Errorf("%q are to drain", got)
	}
	for machine, want := range map[string]bool{silent: true, instance: false, "i-0ccccccccccccccc0": false} {
		if _, err := p.Docs.Get(t.Context(), record.HeartbeatKey(machine)); (err == nil) != want {
			t.Errorf("%s: %v, want it recorded: %t", machine, err, want)
		}
	}
}

func TestConcurrentNoticesOfOneMachineRecordItOnce(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	meanwhile := func(ctx context.Context, machine string) (string, error) {
		if err := interrupter(p).Handle(ctx, preempted(machine, "rebalance recommendation")); err != nil {
			t.Error(err)
		}
		return fleetOf(ctx, machine)
	}
	if err := interrupterWith(p, meanwhile).Handle(t.Context(), preempted(silent, "spot interruption")); err != nil {
		t.Error(err)
	}
}

// A machine has failed to boot as long as it has not answered anything, whatever ended it.
func TestMachineThatEndsBeforeItAnsweredIsAFailedBoot(t *testing.T) {
	t.Parallel()
	const machine = working
	for name, c := range map[string]struct {
		states []health.State
		rows   int64
		notice func() cloud.MachineNotice
		want   string // "" for no record
	}{
		"its server crashed the machine": {[]health.State{health.Init}, 0,
			func() cloud.MachineNotice { return terminated(machine, 0) },
			"failed: it ended before its workers answered anything"},
		"a worker was ready": {[]health.State{health.Gone, health.Ready}, 0,
			func() cloud.MachineNotice { return terminated(machine, 0) },
			"failed: it ended before its workers answered anything"},
		"it had no work": {[]health.State{health.Gone, health.Gone}, 0,
			func() cloud.MachineNotice { return terminated(machine, 0) }, ""},
		"its first worker crashed, and its second had no work": {[]health.State{health.Init, health.Gone}, 0,
			func() cloud.MachineNotice { return terminated(machine, 0) }, ""},
		"its second worker crashed": {[]health.State{health.Gone, health.Init}, 0,
			func() cloud.MachineNotice { return terminated(machine, 0) },
			"failed: it ended before its workers answered anything"},
		"it worked": {[]health.State{health.Ready, health.Init}, 7,
			func() cloud.MachineNotice { return terminated(machine, 0) }, ""},
		"a spot notice while its server loads": {[]health.State{health.Init}, 0,
			func() cloud.MachineNotice { return preempted(machine, "spot interruption") }, "taken back: spot interruption"},
		"a spot notice while it works": {[]health.State{health.Ready}, 7,
			func() cloud.MachineNotice { return preempted(machine, "spot interruption") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := hosttest.New()
				for n, state := range c.states {
					worker := "m" + string(rune('0'+n))
					hosttest.Save(t, p, record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "small",
						State: state, Instance: machine, Load: health.Load{Rows: c.rows},
						Started: time.Now().Add(time.Duration(n) * time.Second)})
				}
				for range 2 { // events come more than once
					if err := interrupter(p).Handle(t.Context(), c.notice()); err != nil {
						t.Fatal(err)
					}
				}
				var b health.Heartbeat
				if _, _, err := host.Load(t.Context(), p.Docs, record.HeartbeatKey(machine), &b); err != nil {
					t.Fatal(err)
				}
				got := ""
				switch {
				case b.FailureReason != "":
					got = "failed: " + b.FailureReason
				case b.TakenBack != "":
					got = "taken back: " + b.TakenBack
				}
				if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || got != "" && b.Pool != "small" {
					t.Errorf("it is recorded as %q of pool %q, want %q", got, b.Pool, c.want)
				}
			})
		})
	}
}

// The end of a machine takes the place of how far its boot was.
func TestNoticeWhileBootingIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		boot := &health.Boot{Stage: health.BootModel, Since: time.Now()}
		for name, c := range map[string]struct {
			state  health.State
			notice cloud.MachineNotice
			want   func(health.Heartbeat) bool
		}{
			"a spot notice": {health.Booting, preempted(silent, "spot interruption"),
				func(b health.Heartbeat) bool { return b.TakenBack == "spot interruption" && b.FailureReason == "" }},
			"its end": {health.Booting, terminated(silent, 0), func(b health.Heartbeat) bool { return b.FailureReason != "" }},
			"its end after its boot, without an answer": {health.Gone, terminated(silent, 0),
				func(b health.Heartbeat) bool { return b.FailureReason != "" }},
		} {
			p := hosttest.New()
			hosttest.Save(t, p, record.HeartbeatKey(silent), health.Heartbeat{Schema: 1, Worker: silent, Pool: "small",
				State: c.state, Instance: silent, Boot: boot})
			for range 2 {
				if err := interrupter(p).Handle(t.Context(), c.notice); err != nil {
					t.Fatal(err)
				}
			}
			b := hosttest.Load[health.Heartbeat](t, p, record.HeartbeatKey(silent))
			if b.State != health.Gone || !c.want(b) || b.Boot != nil || len(marked(t, p)) > 0 {
				t.Errorf("%s: %+v, marked %q", name, b, marked(t, p))
			}
		}
	})
}

func TestPreemptionIsRetriedWhenTheProviderDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for kind, again := range map[fault.Kind]bool{fault.Throttled: true, fault.Unavailable: true, fault.Denied: false} {
		p, _ := newFixture(t)
		err := interrupterWith(p, func(context.Context, string) (string, error) { return "", fault.New(kind, "no") }).
			Handle(t.Context(), preempted(silent, "spot interruption"))
		if (err != nil) != again || again && !fault.Is(err, kind) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// The newest notice stands, whatever the order in which notices come.
func TestFailedLaunchIsNotedForItsPool(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, ago := range []time.Duration{time.Hour, 0, time.Minute, 0} {
		if err := interrupter(p).Handle(t.Context(), cloud.MachineNotice{
			Kind: cloud.LaunchFailed, Fleet: "acme-small", Reason: "no capacity since " + ago.String(), At: at.Add(-ago),
		}); err != nil {
			t.Fatal(err)
		}
	}
	f := hosttest.Load[record.Fleet](t, p, record.FleetKey("small"))
	if !f.AbsentAt.Equal(at) || f.Absent != "no capacity since 0s" {
		t.Errorf("the note is %+v", f)
	}
}

func TestNoticesOfOtherFleetsAreIgnored(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	other := terminated(silent, time.Minute)
	other.Fleet = "acme-other"
	launch := cloud.MachineNotice{Kind: cloud.LaunchFailed, Fleet: "other", Reason: "no capacity", At: time.Now()}
	for _, n := range []cloud.MachineNotice{other, launch} {
		if err := interrupter(p).Handle(t.Context(), n); err != nil {
			t.Errorf("%+v: %v", n, err)
		}
	}
	_, err := p.Docs.Get(t.Context(), record.FleetKey("small"))
	if !fault.Is(err, fault.NotFound) || len(failures(t, p)) > 0 {
		t.Errorf("recorded %v, %v", failures(t, p), err)
	}
}

// A machine that a user has started is in no fleet, and a deployment may have none: then
// nothing waits for its end.
func TestTakenBackMachineOutsideTheFleetsIsNotRecorded(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]fault.Kind{"in no fleet": fault.NotFound, "no right to ask": fault.Denied} {
		for of, b := range map[string]health.Heartbeat{
			"a worker that has not answered": {Worker: "w1", State: health.Init},
			"a machine that boots": {Worker: silent, State: health.Booting,
				Boot: &health.Boot{Stage: health.BootModel}},
		} {
			p := hosttest.New()
			b.Schema, b.Pool, b.Instance = 1, "small", silent
			hosttest.Save(t, p, record.HeartbeatKey(b.Worker), b)
			i := interrupterWith(p, func(context.Context, string) (string, error) { return "", fault.New(kind, "no") })
			if err := i.Handle(t.Context(), preempted(silent, "spot interruption")); err != nil {
				t.Fatal(err)
			}
			for d, err := range document.All(t.Context(), p.Docs, record.HeartbeatPrefix) {
				if err != nil || strings.Contains(string(d.Value), "spot interruption") {
					t.Errorf("%s, %s: %v, %s", name, of, err, d.Value)
				}
			}
			if drains := b.State == health.Init; drains != (len(marked(t, p)) == 1) {
				t.Errorf("%s, %s: %q are to drain", name, of, marked(t, p))
			}
		}
	}
}
