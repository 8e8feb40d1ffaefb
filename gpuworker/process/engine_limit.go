package process

import (
	"cmp"
	"context"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/ratelimit"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// limiter is an engine that says how many requests it takes at once. The Balancer
// implements it.
type limiter interface {
	Limit() int
	LimitChanges() <-chan struct{} // gets a value when Limit may have changed
	ServerStatuses() []balancer.ServerStatus
}

// limitedEngine is an engine, and its limiter if it is one.
type limitedEngine struct {
	engine.Engine
	limits limiter // nil if the engine sets no limit
	model  *modelNotice
	// aside returns what servers said that the executor has set aside.
	aside func() map[string]string
}

// inFlight returns how many requests a worker may have in flight at first.
func (e limitedEngine) inFlight(w config.Worker) int {
	if e.limits != nil {
		return e.limits.Limit()
	}
	return cmp.Or(w.InFlight, defaultInFlight)
}

// servers returns the status of the engine's inference servers for heartbeats.
func (e limitedEngine) servers() []health.Server {
	if e.limits == nil {
		return nil
	}
	aside := e.aside()
	statuses := e.limits.ServerStatuses()
	out := make([]health.Server, len(statuses))
	for i, s := range statuses {
		v := health.Server{Name: s.Name, State: string(s.State), InFlight: s.InFlight, Limit: s.Limit,
			Waiting: s.Waiting, LastError: cmp.Or(s.Why, e.model.of(s.Name))}
		if words, ok := aside[s.Name]; ok && s.State == balancer.Closed {
			v.State, v.LastError = health.ServerSetAside, words
		}
		v.LastError = worker.Truncate(v.LastError)
		out[i] = v
	}
	return out
}

// adjust keeps the worker's number of requests in flight at the engine's limit
// until ctx ends.
func (e limitedEngine) adjust(ctx context.Context, w *worker.Worker) {
	if e.limits == nil {
		return
	}
	for {
		select {
		case <-e.limits.LimitChanges():
			w.SetInFlight(e.limits.Limit())
		case <-ctx.Done():
			return
		}
	}
}

// limitOf returns what all workers of the pool may ask in a minute.
func limitOf(p config.Pool) ratelimit.Amount {
	return ratelimit.Amount{Requests: int64(p.RequestsPerMinute), Tokens: int64(p.TokensPerMinute)}
}

// meterServers adds the status of a balancer's servers to the metrics.
func meterServers(e limitedEngine, p host.Ports) {
	if e.limits == nil || p.Watch.Meter == nil {
		return
	}
	p.Watch.Meter.AddServerSource(func() []observe.Server {
		var out []observe.Server
		for _, s := range e.servers() {
			up := s.State == health.ServerClosed || s.State == string(balancer.Probing)
			out = append(out, observe.Server{Name: s.Name, Up: up, InFlight: s.InFlight, Limit: s.Limit})
		}
		return out
	})
}
