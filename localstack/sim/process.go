package sim

import (
	"context"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
)

// process is one simulated process: whatever it does to the world outside goes
// through it. Crashing it takes effect between any two effects.
type process struct {
	name    string
	world   *World
	ctx     context.Context // ends with the process
	kill    context.CancelFunc
	skew    time.Duration
	dead    atomic.Bool
	frozen  atomic.Pointer[chan struct{}] // closed to thaw
	crashes float64                       // chance after each effect
}

// start returns a fresh process.
func (w *World) start(ctx context.Context, name string, crashes float64) *process {
	ctx, kill := context.WithCancel(ctx)
	limit := w.timings.SkewBudget / 2
	return &process{name: name, world: w, ctx: ctx, kill: kill, crashes: crashes,
		skew: w.rand.duration("skew/"+name, -limit, limit)}
}

// Now is the process's own clock.
func (p *process) Now() time.Time { return time.Now().Add(p.skew) }

// crash ends the process at once: none of its later effects happens.
func (p *process) crash() {
	p.dead.Store(true)
	p.kill()
}

// freeze stops the process, as SIGSTOP does, until the returned function is
// called. Time goes on.
func (p *process) freeze() (thaw func()) {
	ch := make(chan struct{})
	p.frozen.Store(&ch)
	return func() { p.frozen.Store(nil); close(ch) }
}

// checkAlive is passed before and after every effect.
func (p *process) checkAlive(ctx context.Context) error {
	if ch := p.frozen.Load(); ch != nil {
		select {
		case <-*ch:
		case <-ctx.Done():
		}
	}
	if p.dead.Load() {
		return fault.New(fault.Unavailable, "process %s is dead", p.name)
	}
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, ctx.Err(), "process %s", p.name)
	}
	return nil
}

// effect performs one call to a store, with everything that can go wrong:
// it comes late, fails before it is applied, is applied and its reply lost, or
// the process dies right after it.
func (p *process) effect(ctx context.Context, name string, apply func() error) error {
	w := p.world
	label := p.name + "/" + name
	if err := p.delay(ctx, label); err != nil {
		return err
	}
	if w.faultsOn() && w.rand.chance("fail/"+label, w.chaos.Fail) {
		return fault.New(fault.Unavailable, "injected: %s failed", name)
	}
	err := apply()
	if w.faultsOn() && err == nil && w.rand.chance("crash/"+label, p.crashes) {
		w.tracef("%s dies after %s", p.name, name)
		p.crash()
		return fault.New(fault.Unavailable, "process %s is dead", p.name)
	}
	if w.faultsOn() && err == nil && w.rand.chance("lose/"+label, w.chaos.LoseReply) {
		return fault.New(fault.Unavailable, "injected: the reply of %s is lost", name)
	}
	if gateErr := p.delay(ctx, label); gateErr != nil && err == nil {
		return gateErr
	}
	return err
}

// delay lets a call take some time.
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
