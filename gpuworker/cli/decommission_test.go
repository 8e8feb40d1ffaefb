package cli

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// machineFixture is a membership with scripted answers. It records the calls of
// Terminate.
type machineFixture struct {
	inFleet bool
	unknown error
	answers []error // of Terminate, in order; nil after the last
	left    []capacity.TerminationMode
}

func (r *machineFixture) InFleet(context.Context) (bool, error) { return r.inFleet, r.unknown }

func (r *machineFixture) Terminate(_ context.Context, after capacity.TerminationMode) error {
	r.left = append(r.left, after)
	if len(r.answers) < len(r.left) {
		return nil
	}
	return r.answers[len(r.left)-1]
}

func TestDecommissionTerminatesFleetMachine(t *testing.T) {
	t.Parallel()
	busy, denied := fault.New(fault.Unavailable, "a scaling activity is in progress"), fault.New(fault.Denied, "no")
	for name, c := range map[string]struct {
		inFleet bool
		end     process.ExitReason
		answers []error
		want    []capacity.TerminationMode
		err     bool
	}{
		"idle": {true, process.Idle, nil, []capacity.TerminationMode{capacity.Shrink}, false},
		"machine lost": {true, process.MachineLost, nil,
			[]capacity.TerminationMode{capacity.Replace}, false},
		"requested end does not terminate": {true, process.Requested, nil, nil, false},
		"machine outside a fleet":          {false, process.Idle, nil, nil, false},
		"retries while the fleet is busy": {true, process.Idle, []error{busy, busy},
			[]capacity.TerminationMode{capacity.Shrink, capacity.Shrink, capacity.Shrink}, false},
		"fleet does not know the machine": {true, process.Idle, []error{fault.New(fault.NotFound, "none")},
			[]capacity.TerminationMode{capacity.Shrink}, false},
		"denied is an error": {true, process.Idle, []error{denied},
			[]capacity.TerminationMode{capacity.Shrink}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &machineFixture{inFleet: c.inFleet, answers: c.answers}
				s := &workplace{membership: r, ports: host.Ports{Log: slog.New(slog.DiscardHandler)}}
				if err := (flags{}).decommission(t.Context(), s, c.end); (err != nil) != c.err ||
					!slices.Equal(r.left, c.want) {
					t.Errorf("left %v, %v; want %v", r.left, err, c.want)
				}
			})
		})
	}
}

// TestDecommissionRecordsFailureOfUnusableMachine checks the failed heartbeats of
// unusable machines. Without them the fleet would start a new machine for the same
// work forever.
func TestDecommissionRecordsFailureOfUnusableMachine(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "small", Model: "m"}}
	for name, c := range map[string]struct {
		end    process.ExitReason
		failed int
	}{
		"unusable":     {process.Unusable, 1},
		"GPU failed":   {process.GPUFailed, 1},
		"idle":         {process.Idle, 0},
		"machine lost": {process.MachineLost, 0},
	} {
		r := &machineFixture{inFleet: true}
		docs := memory.NewDocuments()
		s := &workplace{
			membership: r,
			deployment: d,
			machine:    gpus{},
			ports:      host.Ports{Docs: docs, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)},
		}
		if err := (flags{}).decommission(t.Context(), s, c.end); err != nil || len(r.left) != 1 {
			t.Errorf("%s: left %v, %v", name, r.left, err)
		}
		failed := 0
		if err := host.Each(t.Context(), docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
			if failed++; b.FailureReason == "" || b.Pool != "small" || b.Instance != "i-1" || b.State != health.Gone {
				t.Errorf("%s: the final heartbeat is %+v", name, b)
			}
			return nil
		}); err != nil || failed != c.failed {
			t.Errorf("%s: %d failed heartbeats, %v; want %d", name, failed, err, c.failed)
		}
	}
}

// TestDecommissionFailsWithoutMetadata checks that a machine of a fleet fails if
// it cannot learn its membership. The failed process is restarted and tries again;
// a successful exit would leave an idle machine running.
func TestDecommissionFailsWithoutMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silence := fault.New(fault.Unavailable, "no metadata")
		r := &machineFixture{unknown: silence, answers: []error{silence, silence, silence, silence, silence, silence}}
		s := &workplace{membership: r, launchedForFleet: true, ports: host.Ports{Log: slog.New(slog.DiscardHandler)}}
		if err := (flags{}).decommission(t.Context(), s, process.Idle); !fault.Is(err, fault.Unavailable) ||
			len(r.left) != 6 {
			t.Errorf("%v after %d tries", err, len(r.left))
		}
	})
}

func TestIdleTimeoutAppliesOnlyToFleetMachines(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Cloud.Fleet = config.DefaultFleet()
	log := host.Ports{Log: slog.New(slog.DiscardHandler)}
	silent := &machineFixture{unknown: fault.New(fault.Unavailable, "no metadata")}
	for _, c := range []struct {
		membership capacity.Membership
		launched   bool
		want       config.Duration
	}{
		{&machineFixture{inFleet: true}, false, d.Cloud.Fleet.IdleTimeout},
		{&machineFixture{}, true, 0},
		{silent, false, 0},
		{silent, true, d.Cloud.Fleet.IdleTimeout},
		{nil, true, 0},
	} {
		s := &workplace{membership: c.membership, launchedForFleet: c.launched, deployment: d, ports: log}
		if got := s.idle(t.Context()); got != c.want.Std() {
			t.Errorf("membership %+v: idle for %s, want %s", c.membership, got, c.want.Std())
		}
	}
}
