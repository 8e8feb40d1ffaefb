package cli

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// rental is a machine that may be an instance of a cloud, and its place in a
// fleet, which answers as it is told to.
type rental struct {
	capacity.Source
	instance string
	answers  []error
	left     []capacity.Succession
}

func (r *rental) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{Instance: r.instance}, nil
}

func (r *rental) Leave(_ context.Context, after capacity.Succession) error {
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
		instance string
		end      process.End
		answers  []error
		want     []capacity.Succession
		err      bool
	}{
		"without work":                   {"i-1", process.Idle, nil, []capacity.Succession{capacity.Shrink}, false},
		"and is not fit":                 {"i-1", process.Unfit, nil, []capacity.Succession{capacity.Replace}, false},
		"but not if they were asked to":  {"i-1", process.Asked, nil, nil, false},
		"but not one of one's own":       {"", process.Idle, nil, nil, false},
		"again, if its fleet is busy":    {"i-1", process.Idle, []error{busy, busy}, []capacity.Succession{capacity.Shrink, capacity.Shrink, capacity.Shrink}, false},
		"but stays if it is in no fleet": {"i-1", process.Idle, []error{fault.New(fault.NotFound, "none")}, []capacity.Succession{capacity.Shrink}, false},
		"and who can't do so says it":    {"i-1", process.Idle, []error{denied}, []capacity.Succession{capacity.Shrink}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &rental{instance: c.instance, answers: c.answers}
				s := &site{machine: r, seat: r, ports: host.Ports{Log: slog.New(slog.DiscardHandler)}}
				if err := depart(t.Context(), s, c.end); (err != nil) != c.err || !slices.Equal(r.left, c.want) {
					t.Errorf("left %v, %v; want %v", r.left, err, c.want)
				}
			})
		})
	}
}

func TestOnlyARentedMachinesWorkersEndWithoutWork(t *testing.T) {
	t.Parallel()
	d := config.DefaultDeployment()
	d.Cloud.Fleet = config.DefaultFleet()
	for instance, want := range map[string]config.Duration{"i-1": d.Cloud.Fleet.Idle, "": 0} {
		r := &rental{instance: instance}
		if got := (&site{machine: r, seat: r, deployment: d}).idle(t.Context()); got != want.Std() {
			t.Errorf("instance %q: idle for %s, want %s", instance, got, want.Std())
		}
	}
	if got := (&site{machine: &rental{instance: "i-1"}, deployment: d}).idle(t.Context()); got != 0 {
		t.Errorf("on a laptop: idle for %s", got)
	}
}
