package process

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

// observedEngine is an engine that emits an event when it becomes ready and when
// one of its servers crashes. It changes neither answers nor faults, and looks into a
// request only for the model that it names.
type observedEngine struct {
	engine.Engine
	url   string // without a password
	ports host.Ports
	model *modelNotice

	mu      sync.Mutex
	ready   bool
	crashed map[engine.CrashError]bool // starts of servers that are known to have crashed
}

// maxCrashed bounds how many crashed starts are remembered.
const maxCrashed = 256

// observeEngine wraps the engine at the URL. The events omit the URL's password.
func observeEngine(e engine.Engine, at string, p host.Ports, model *modelNotice) engine.Engine {
	if u, err := url.Parse(at); err == nil {
		at = u.Redacted()
	}
	return &observedEngine{Engine: e, url: at, ports: p, model: model, crashed: map[engine.CrashError]bool{}}
}

// Answer passes the request on. A crash is reported once for all requests that it
// ended.
func (o *observedEngine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a, err := o.Engine.Answer(ctx, r, progress)
	if err != nil {
		o.reportCrash(ctx, err)
	} else {
		o.model.answered(ctx, r, a)
	}
	return a, err
}

// Ready passes the call on, and reports when the engine becomes ready.
func (o *observedEngine) Ready(ctx context.Context) (model string, err error) {
	model, err = o.Engine.Ready(ctx)
	if ctx.Err() != nil {
		return model, err
	}
	o.mu.Lock()
	becameReady := err == nil && !o.ready
	o.ready = err == nil
	if becameReady { // a server that does not name its starts may crash again
		for c := range o.crashed {
			if c.Start == "" {
				delete(o.crashed, c)
			}
		}
	}
	o.mu.Unlock()
	if becameReady {
		o.ports.Observe(ctx, observe.EngineStarted{Server: o.url, Model: model})
		o.model.becameReady(ctx)
	}
	return model, err
}

// reportCrash reports a server's crash, if err is the first fault to show it.
func (o *observedEngine) reportCrash(ctx context.Context, err error) {
	var c *engine.CrashError
	if !errors.As(err, &c) || fault.Is(err, fault.Canceled) {
		return
	}
	start := engine.CrashError{Server: c.Server, Start: c.Start}
	o.mu.Lock()
	known := o.crashed[start]
	if len(o.crashed) >= maxCrashed {
		clear(o.crashed)
	}
	o.crashed[start], o.ready = true, false
	o.mu.Unlock()
	if !known {
		o.ports.Observe(ctx, observe.EngineDied{Server: c.Server, Start: c.Start})
	}
}
