package process

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/engine/openai"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/secret"
)

// Engine connects the deployment's engine: one in this process, or a fleet of
// servers.
func Engine(ctx context.Context, d config.Deployment, secrets secret.Store, log *slog.Logger) (engine.Engine, error) {
	urls := d.Engine.Servers()
	switch {
	case len(urls) == 0:
		return nil, NoEngine("this worker")
	case urls[0] == config.EngineMock:
		model := config.EngineMock
		if ps := d.InferPools(); len(ps) == 1 {
			model = ps[0].Model
		}
		return mock.New(mock.Config{Model: model}), nil
	case urls[0] == config.EngineTiny:
		b, err := weights.Shipped()
		if err != nil {
			return nil, err
		}
		return tiny.Load(b, runtime.GOMAXPROCS(0), scheduler.Config{Slots: tinySlots, Queue: max(1024, d.Worker.InFlight)})
	}
	var key secret.Value
	if d.Engine.Secret != "" {
		var err error
		if key, err = secrets.Get(ctx, d.Engine.Secret); err != nil {
			return nil, fault.Wrap(err, "key of the engine %s", d.Engine)
		}
	}
	w := d.Worker
	cfg := balancer.Config{InFlight: w.InFlight, MinInFlight: w.MinInFlight, MaxInFlight: w.MaxInFlight, Log: log}
	for _, u := range urls {
		c, err := openai.New(openai.Config{BaseURL: u, Key: key, MaxInFlight: cmp.Or(w.InFlight, w.MaxInFlight),
			ClampMaxTokens: d.Engine.ClampMaxTokens, Logger: log})
		if err != nil {
			return nil, err
		}
		cfg.Servers = append(cfg.Servers, balancer.Backend{Name: u, Server: c})
	}
	return balancer.New(cfg), nil
}

// shared names the engine among those that workers may share: what is on this
// machine alone is another one than what has the same address elsewhere. "" is
// one that lives in the worker.
func shared(e config.Engine, machine string) string {
	urls := e.Servers()
	if len(urls) == 0 || e.InProcess() {
		return ""
	}
	var names []string
	for _, u := range urls {
		at, err := url.Parse(u)
		if err != nil { // no engine is made of it
			continue
		}
		name := at.Host + at.Path // not who asks
		if ip := net.ParseIP(at.Hostname()); at.Hostname() == "localhost" || ip.IsLoopback() || ip.IsUnspecified() {
			name = machine + "/" + name
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// inProcess is what an engine in this process gets at once if nobody says: as
// many requests wait for the tiny one as it works on.
const (
	inProcess = 64
	tinySlots = inProcess / 2
)

// limiter is an engine that says how many requests it takes at once.
type limiter interface {
	Limit() int
	LimitChanges() <-chan struct{} // gets a value when Limit may have changed
	ServerStatuses() []balancer.ServerStatus
}

// watchedEngine is the engine that a worker asks, and what it says of how many
// requests it takes; nil if it does not say.
type watchedEngine struct {
	engine.Engine
	limits limiter
}

// inFlight is how many requests a worker begins with.
func (e watchedEngine) inFlight(w config.Worker) int {
	if e.limits != nil {
		return e.limits.Limit()
	}
	return cmp.Or(w.InFlight, inProcess)
}

// servers are the inference servers behind the engine, as heartbeats tell
// them.
func (e watchedEngine) servers() []health.Server {
	if e.limits == nil {
		return nil
	}
	standings := e.limits.ServerStatuses()
	out := make([]health.Server, len(standings))
	for i, s := range standings {
		out[i] = health.Server{Name: s.Name, State: string(s.State), InFlight: s.InFlight, Limit: s.Limit, Waiting: s.Waiting, LastError: worker.Truncate(s.Why)}
	}
	return out
}

// follow lets a worker make as many requests at once as the engine takes.
func (e watchedEngine) follow(ctx context.Context, w *worker.Worker) {
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

// meterServers lets whoever counts ask how the servers stand.
func meterServers(e engine.Engine, p host.Ports) {
	f, ok := e.(*balancer.Balancer)
	if !ok || p.Watch.Meter == nil {
		return
	}
	p.Watch.Meter.AddServerSource(func() []observe.Server {
		var out []observe.Server
		for _, s := range f.ServerStatuses() {
			out = append(out, observe.Server{Name: s.Name, Up: s.State == balancer.Closed || s.State == balancer.Probing, InFlight: s.InFlight, Limit: s.Limit})
		}
		return out
	})
}
