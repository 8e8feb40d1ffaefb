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

// machineFixture is a machine's place in a fleet, if it has one, which answers as it is
// told to.
type machineFixture struct {
	taken   bool
	unknown error
	answers []error
	left    []capacity.TerminationMode
}

func (r *machineFixture) InFleet(context.Context) (bool, error) { return r.taken, r.unknown }

func (r *machineFixture) Terminate(_ context.Context, after capacity.TerminationMode) error {
	r.left = append(r.left, after)
	if len(r.answers) < len(r.left) {
		return nil
	}
	return r.answers[len(r.left)-1]
}

func TestARentedMachineIsGivenUpWhenItsWorkersHaveLeft(t *testing.T) {
	t.Parallel()
	busy, denied := fault.New(fault.Unavailable, "a scaling activity is in progress"), fault.New(fault.Denied, "no")
	for name, c := range map[string]struct {
		taken   bool
		end     process.ExitReason
		answers []error
		want    []capacity.TerminationMode
		err     bool
	}{
		"without work":                   {true, process.Idle, nil, []capacity.TerminationMode{capacity.Shrink}, false},
		"and is not fit":                 {true, process.MachineLost, nil, []capacity.TerminationMode{capacity.Replace}, false},
		"but not if they were asked to":  {true, process.Requested, nil, nil, false},
		"but not one of one's own":       {false, process.Idle, nil, nil, false},
		"again, if its fleet is busy":    {true, process.Idle, []error{busy, busy}, []capacity.TerminationMode{capacity.Shrink, capacity.Shrink, capacity.Shrink}, false},
		"but stays if it is in no fleet": {true, process.Idle, []error{fault.New(fault.NotFound, "none")}, []capacity.TerminationMode{capacity.Shrink}, false},
		"and who can't do so says it":    {true, process.Idle, []error{denied}, []capacity.TerminationMode{capacity.Shrink}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &machineFixture{taken: c.taken, answers: c.answers}
				s := &workplace{membership: r, ports: host.Ports{Log: slog.New(slog.DiscardHandler)}}
				if err := (flags{}).decommission(t.Context(), s, c.end); (err != nil) != c.err || !slices.Equal(r.left, c.want) {
					t.Errorf("left %v, %v; want %v", r.left, err, c.want)
				}
			})
		})
	}
}

// Else its fleet would bring up one after the other for the same work, for ever.
func TestAMachineThatNobodyCouldWorkOnSaysSoAndGoes(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "small", Model: "m"}}
	for name, c := range map[string]struct {
		end  process.ExitReason
		said int
	}{"it could not be worked on": {process.Unusable, 1}, "its GPU failed": {process.GPUFailed, 1}, "there was no work": {process.Idle, 0}, "it is taken away": {process.MachineLost, 0}} {
		r := &machineFixture{taken: true}
		docs := memory.NewDocuments()
		s := &workplace{membership: r, deployment: d, machine: gpus{}, ports: host.Ports{Docs: docs, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler)}}
		if err := (flags{}).decommission(t.Context(), s, c.end); err != nil || len(r.left) != 1 {
			t.Errorf("%s: left %v, %v", name, r.left, err)
		}
		said := 0
		if err := host.Each(t.Context(), docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
			if said++; b.FailureReason == "" || b.Pool != "small" || b.Instance != "i-1" || b.State != health.Gone {
				t.Errorf("%s: its last word is %+v", name, b)
			}
			return nil
		}); err != nil || said != c.said {
			t.Errorf("%s: %d last words, %v", name, said, err)
		}
	}
}

// It fails instead, is started again, and asks again: an end in order would leave
// a machine that nobody works on and nobody ends.
func TestAMachineOfAFleetDoesNotStayOverAQuestionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silence := fault.New(fault.Unavailable, "no metadata")
		r := &machineFixture{unknown: silence, answers: []error{silence, silence, silence, silence, silence, silence}}
		s := &workplace{membership: r, launchedForFleet: true, ports: host.Ports{Log: slog.New(slog.DiscardHandler)}}
		if err := (flags{}).decommission(t.Context(), s, process.Idle); !fault.Is(err, fault.Unavailable) || len(r.left) != 6 {
			t.Errorf("%v after %d tries", err, len(r.left))
		}
	})
}

func TestOnlyARentedMachinesWorkersEndWithoutWork(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Cloud.Fleet = config.DefaultFleet()
	log := host.Ports{Log: slog.New(slog.DiscardHandler)}
	silent := &machineFixture{unknown: fault.New(fault.Unavailable, "no metadata")}
	for _, c := range []struct {
		seat   capacity.Membership
		cameUp bool
		want   config.Duration
	}{{&machineFixture{taken: true}, false, d.Cloud.Fleet.IdleTimeout}, {&machineFixture{}, true, 0}, {silent, false, 0}, {silent, true, d.Cloud.Fleet.IdleTimeout}, {nil, true, 0}} {
		if got := (&workplace{membership: c.seat, launchedForFleet: c.cameUp, deployment: d, ports: log}).idle(t.Context()); got != c.want.Std() {
			t.Errorf("seat %+v: idle for %s, want %s", c.seat, got, c.want.Std())
		}
	}
}
