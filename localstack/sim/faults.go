package sim

import (
	"context"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/fault"
)

// faultRates are the probabilities of faults, per call or per message.
type faultRates struct {
	Crash, Fail, LoseReply, Drop, Duplicate, Late float64
}

// effect performs one call to a store with its faults: it is delayed, fails before
// it is applied, is applied and loses its reply, or is the last one before the
// process crashes.
func (p *process) effect(ctx context.Context, name string, apply func() error) error {
	w := p.world
	label := p.name + "/" + name
	if err := p.delay(ctx, label); err != nil {
		return err
	}
	if w.faultsOn() && w.rand.chance("fail/"+label, w.rates.Fail) {
		return fault.New(fault.Unavailable, "injected: %s failed", name)
	}
	err := apply()
	if w.faultsOn() && err == nil && w.rand.chance("crash/"+label, p.crashes) {
		w.tracef("%s crashes after %s", p.name, name)
		p.crash()
		return fault.New(fault.Unavailable, "process %s has crashed", p.name)
	}
	if w.faultsOn() && err == nil && w.rand.chance("lose/"+label, w.rates.LoseReply) {
		return fault.New(fault.Unavailable, "injected: the reply of %s is lost", name)
	}
	if gateErr := p.delay(ctx, label); gateErr != nil && err == nil {
		return gateErr
	}
	return err
}

// delay waits for the drawn duration of a call.
func (p *process) delay(ctx context.Context, label string) error {
	d := p.world.rand.duration("delay/"+label, 10*time.Microsecond, time.Millisecond)
	if p.world.faultsOn() && p.world.rand.chance("slow/"+label, 0.02) {
		d += p.world.rand.duration("slower/"+label, 0, 300*time.Millisecond)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return p.checkAlive(ctx)
}

// faultsOn reports whether faults are still injected.
func (w *world) faultsOn() bool { return !w.faultsEnded.Load() }

// disturb drains, freezes or kills a worker after a drawn time.
func (w *world) disturb(p *process, wk *worker.Worker) {
	pause(p.ctx, w.rand.duration("when/"+p.name, 0, 15*time.Second))
	if p.ctx.Err() != nil {
		return
	}
	kind := w.rand.intN("what/"+p.name, 3)
	if w.poison != noPoison {
		kind = 0
	}
	switch kind {
	case 0:
		wk.Drain("a notice")
		wk.Drain("the same notice again")
	case 1:
		w.tracef("%s is frozen", p.name)
		resume := p.freeze()
		pause(p.ctx, w.rand.duration("frozen/"+p.name, time.Second, 12*time.Second))
		resume()
		w.tracef("%s is resumed", p.name)
	case 2:
		w.tracef("%s is killed", p.name)
		p.crash()
	}
}
