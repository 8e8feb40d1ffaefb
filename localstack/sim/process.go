package sim

import (
	"context"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
)

// process is one simulated process. All its effects on the world go through it, so
// that a crash takes effect between two of them.
type process struct {
	name   string
	world  *world
	ctx    context.Context // ends with the process
	kill   context.CancelFunc
	skew   time.Duration
	dead   atomic.Bool
	frozen atomic.Pointer[chan struct{}] // closed to resume it
	// wasFrozen says that the process was frozen at any time.
	wasFrozen atomic.Bool
	crashes   float64 // probability of a crash after each effect
}

// start returns a new process, with a clock of its own.
func (w *world) start(ctx context.Context, name string, crashes float64) *process {
	ctx, kill := context.WithCancel(ctx)
	limit := w.timings.SkewBudget / 2
	return &process{name: name, world: w, ctx: ctx, kill: kill, crashes: crashes,
		skew: w.rand.duration("skew/"+name, -limit, limit)}
}

// Now is the process's own clock.
func (p *process) Now() time.Time { return time.Now().Add(p.skew) }

// crash ends the process at once. None of its later effects happens.
func (p *process) crash() {
	p.dead.Store(true)
	p.world.spending.end(p.name)
	p.kill()
}

// freeze stops the process, as SIGSTOP does, until resume is called. Time goes on.
func (p *process) freeze() (resume func()) {
	ch := make(chan struct{})
	p.frozen.Store(&ch)
	p.wasFrozen.Store(true)
	return func() { p.frozen.Store(nil); close(ch) }
}

// checkAlive is called before and after every effect. It waits while the process
// is frozen, and fails once it has crashed.
func (p *process) checkAlive(ctx context.Context) error {
	if ch := p.frozen.Load(); ch != nil {
		select {
		case <-*ch:
		case <-ctx.Done():
		}
	}
	if p.dead.Load() {
		return fault.New(fault.Unavailable, "process %s has crashed", p.name)
	}
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, ctx.Err(), "process %s", p.name)
	}
	return nil
}
