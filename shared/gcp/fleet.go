package gcp

import (
	"context"

	"rollout/shared/capacity"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// fleet is the machines of a stack. Each pool has its own kind of machines:
//
//	ScaleUp, Withdraw ──▶ the pool's machines ─┬─ "group"     ▶ groups of Compute Engine
//	                                           └─ "cloud-run" ▶ the tasks of a job
type fleet struct {
	pools map[string]capacity.Fleet // by the pool's name
}

var (
	_ capacity.Fleet      = (*fleet)(nil)
	_ capacity.Withdrawer = (*fleet)(nil)
)

// Fleet returns the machines of the stack's pools; see cloud.Installation.
func (s *Stack) Fleet() capacity.Fleet {
	f := &fleet{pools: map[string]capacity.Fleet{}}
	for _, p := range s.Deployment.Pools {
		f.pools[p.Name] = s.machinesOf(p)
	}
	return f
}

// machinesOf returns the machines of a pool, by the kind that its config names.
func (s *Stack) machinesOf(p config.Pool) capacity.Fleet {
	switch p.Machines {
	case config.MachinesCloudRun:
		return s.jobs()
	default:
		return &groups{pool: p.Name, names: GroupNames(s.Deployment, p.Name), managers: s.managers(),
			docs: s.Ports.Docs, clock: s.Ports.Clock, log: s.Ports.Log}
	}
}

// ScaleUp scales up the pool's machines; see capacity.Fleet.
func (f *fleet) ScaleUp(ctx context.Context, pool string, machines int) error {
	of, ok := f.pools[pool]
	if !ok {
		return fault.New(fault.NotFound, "the config has no pool %s", pool)
	}
	return of.ScaleUp(ctx, pool, machines)
}

// Withdraw gives up the pool's requests; see capacity.Withdrawer.
func (f *fleet) Withdraw(ctx context.Context, pool string) error {
	if of, ok := f.pools[pool].(capacity.Withdrawer); ok {
		return of.Withdraw(ctx, pool)
	}
	return nil
}
