package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// PoolMachines are the machines of a pool on which no worker has started so far.
//
//	asked for ──▶ launching ──▶ image ──▶ model ──▶ ready: its workers have heartbeats
type PoolMachines struct {
	Pool string `json:"pool"`
	// Asked is how many machines the cloud was asked for that do not exist.
	Asked int `json:"asked"`
	// Launching is how many exist, and have neither said anything nor a worker.
	Launching int `json:"launching"`
	// Booting are those that say how far they are; never null.
	Booting []BootingMachine `json:"booting"`
}

// BootingMachine is a machine that says how far its boot is.
type BootingMachine struct {
	Machine string           `json:"machine"` // the cloud's name of it
	Stage   health.BootStage `json:"stage"`
	Since   time.Time        `json:"since"`
}

// setMachines sets the machines that are asked for or boot for runs. It reads nothing outside
// a cloud, or if no run needs machines.
func (r *Reader) setMachines(ctx context.Context, of []Progress) error {
	if !r.profile.Capabilities.ManagedFleet {
		return nil
	}
	needed := make([][]string, len(of))
	var pools []string
	for i, p := range of {
		if p.Manifest.Refused == "" && !p.State.Phase.Ended() {
			needed[i] = p.Manifest.NeededPools(p.State)
			pools = append(pools, needed[i]...)
		}
	}
	slices.Sort(pools)
	if pools = slices.Compact(pools); len(pools) == 0 {
		return nil
	}
	booting, err := r.booting(ctx)
	if err != nil {
		return err
	}
	machines := map[string]PoolMachines{}
	for _, pool := range pools {
		var f record.Fleet
		if _, _, err := host.Load(ctx, r.ports.Docs, record.FleetKey(pool), &f); err != nil {
			return fault.Wrap(err, "read the fleet of pool %s", pool)
		}
		machines[pool] = machinesOf(pool, f, booting[pool], of[0].Workers)
	}
	for i := range of {
		for _, pool := range needed[i] {
			if m := machines[pool]; m.Asked+m.Launching+len(m.Booting) > 0 {
				of[i].Machines = append(of[i].Machines, m)
			}
		}
	}
	return nil
}

// machinesOf returns the machines of a pool without a worker.
func machinesOf(pool string, f record.Fleet, booting []BootingMachine, workers []WorkerStatus) PoolMachines {
	known := map[string]bool{}
	for _, w := range workers {
		if w.Alive && w.Pool == pool {
			known[w.Instance] = true
		}
	}
	boots := []BootingMachine{}
	for _, b := range booting {
		if !known[b.Machine] {
			boots = append(boots, b)
		}
	}
	return PoolMachines{Pool: pool, Asked: max(0, f.Desired-f.Present),
		Launching: max(0, f.Present-len(known)-len(boots)), Booting: boots}
}

// booting returns the machines that say how far their boots are, by pool.
func (r *Reader) booting(ctx context.Context) (map[string][]BootingMachine, error) {
	now := r.ports.Clock.Now()
	out := map[string][]BootingMachine{}
	for d, err := range document.All(ctx, r.ports.Docs, record.HeartbeatPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the machines that boot")
		}
		var b health.Heartbeat
		if err := decodeDoc(d, &b); err != nil {
			return nil, err
		}
		if b.State == health.Booting && b.Boot != nil && !r.timings.Dead(b, now) {
			out[b.Pool] = append(out[b.Pool], BootingMachine{b.Instance, b.Boot.Stage, b.Boot.Since.UTC()})
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(x, y BootingMachine) int {
			return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Machine, y.Machine))
		})
	}
	return out, nil
}
