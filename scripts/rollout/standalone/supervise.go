package standalone

import (
	"context"

	"rollout/gpuworker/supervise"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// supervise keeps one worker process of the pool alive until the stack stops.
func (s *Runtime) supervise(ctx context.Context, pool string) error {
	w := supervise.Worker{
		Command: append(s.o.Worker[:len(s.o.Worker):len(s.o.Worker)], "--pool", pool),
		Log:     s.o.Local.Ports.Log.With(observe.KeyPool, pool), OnStart: s.watchStalled,
	}
	switch w.Run(ctx, s.stopping) {
	case supervise.ExitUsage: // starting it again is useless
		return fault.New(fault.Invalid, "worker of pool %s: its arguments or config are wrong; its own words are above", pool)
	case supervise.ExitDamaged: // nobody may go on with it
		s.halt()
		return fault.New(fault.Corrupt, "worker of pool %s found the state damaged; its own words are above", pool)
	}
	return nil
}
