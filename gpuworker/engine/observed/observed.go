// Package observed is an engine that is watched: whoever watches the process
// hears when it can answer and when a server of it dies.
//
// It is a wrapper: what the engine does, and what its faults are, stays as it
// is. It never looks into a request or an answer.
package observed

import (
	"context"
	"errors"
	"net/url"
	"sync"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// New returns the engine at the URL, watched through the ports. A URL that has
// a password is told without it.
func New(e engine.Engine, at string, p host.Ports) engine.Engine {
	if u, err := url.Parse(at); err == nil {
		at = u.Redacted()
	}
	return &watched{Engine: e, at: at, ports: p, dead: map[engine.CrashError]bool{}}
}

type watched struct {
	engine.Engine
	at    string
	ports host.Ports

	mu    sync.Mutex
	ready bool
	dead  map[engine.CrashError]bool // starts of servers that are known to have ended
}

// maxDead bounds how many ended starts are remembered.
const maxDead = 256

// Answer passes the request on. All requests that die with a server tell of it
// once.
func (w *watched) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a, err := w.Engine.Answer(ctx, r, progress)
	if err != nil {
		w.look(ctx, err)
	}
	return a, err
}

// Ready passes the question on.
func (w *watched) Ready(ctx context.Context) (model string, err error) {
	model, err = w.Engine.Ready(ctx)
	if ctx.Err() != nil {
		return model, err
	}
	w.mu.Lock()
	news := err == nil && !w.ready
	w.ready = err == nil
	if news { // a server that does not name its starts may die again
		for d := range w.dead {
			if d.Start == "" {
				delete(w.dead, d)
			}
		}
	}
	w.mu.Unlock()
	if news {
		w.ports.Observe(ctx, observe.EngineStarted{Server: w.at, Model: model})
	}
	return model, err
}

// look tells of a server's death that the fault is the first to show.
func (w *watched) look(ctx context.Context, err error) {
	var d *engine.CrashError
	if !errors.As(err, &d) || fault.Is(err, fault.Canceled) {
		return
	}
	start := engine.CrashError{Server: d.Server, Start: d.Start}
	w.mu.Lock()
	known := w.dead[start]
	if len(w.dead) >= maxDead {
		clear(w.dead)
	}
	w.dead[start], w.ready = true, false
	w.mu.Unlock()
	if !known {
		w.ports.Observe(ctx, observe.EngineDied{Server: d.Server, Start: d.Start})
	}
}
