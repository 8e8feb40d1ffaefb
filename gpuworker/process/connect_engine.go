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
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// An in-process engine gets defaultInFlight requests at once, unless the config
// sets a number. The tiny engine works on tinySlots of them; the others wait.
const (
	defaultInFlight = 64
	tinySlots       = defaultInFlight / 2
)

// ConnectEngine returns the deployment's engine: one in this process, or a
// balancer over its inference servers. It opens no connection. The caller closes
// the engine.
func ConnectEngine(ctx context.Context, d config.Deployment, secrets secret.Store, log *slog.Logger) (
	engine.Engine, error) {
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
	header := map[string]secret.Value{}
	for name, value := range d.Engine.Headers {
		header[name] = secret.NewValue(value)
		if of, ok := strings.CutPrefix(value, config.SecretPrefix); ok {
			v, err := secrets.Get(ctx, of)
			if err != nil {
				return nil, fault.Wrap(err, "header %s of the engine %s", name, d.Engine)
			}
			header[name] = v
		}
	}
	query := url.Values{}
	for name, value := range d.Engine.Query {
		query.Set(name, value)
	}
	w := d.Worker
	cfg := balancer.Config{InFlight: w.InFlight, MinInFlight: w.MinInFlight, MaxInFlight: w.MaxInFlight,
		Stream: streamOf(d.Engine), Silence: w.ProgressTimeout.Std(), Log: log}
	for _, u := range urls {
		c, err := openai.New(openai.Config{BaseURL: u, Key: key, MaxInFlight: cmp.Or(w.InFlight, w.MaxInFlight),
			Header: header, Query: query, ClampMaxTokens: d.Engine.ClampMaxTokens, Ready: readyOf(d.Engine), Logger: log})
		if err != nil {
			return nil, err
		}
		cfg.Servers = append(cfg.Servers, balancer.Backend{Name: u, Server: c})
	}
	return balancer.New(cfg), nil
}

// readyOf returns how the client finds out whether the engine is ready.
func readyOf(e config.Engine) string {
	switch e.Ready {
	case "", config.ReadyAuto:
		return ""
	case config.ReadyNone:
		return openai.ReadyNone
	}
	return e.Ready
}

// streamOf returns which requests the balancer streams.
func streamOf(e config.Engine) balancer.Stream {
	switch e.Stream {
	case config.StreamAlways:
		return balancer.Always
	case config.StreamNever:
		return balancer.Never
	}
	return balancer.Auto
}

// NoEngine returns the error of a user, such as "this worker", that needs an engine
// and was given none.
func NoEngine(user string) error {
	return &fault.Error{Kind: fault.Invalid, Op: user + " has no engine",
		Remedy: "name one with --engine, or url in [engine] of the config: the base URL of an OpenAI-compatible server " +
			"(vLLM, SGLang, llama.cpp), such as http://127.0.0.1:8000/v1, or mock, which answers without a model; " +
			"the built-in model, " + config.ModelTiny + ", needs none"}
}

// sharedEngineName returns the name by which workers recognize that they share an
// engine. Loopback addresses are qualified by the machine. It is "" for an engine
// that lives in the worker.
func sharedEngineName(e config.Engine, machine string) string {
	urls := e.Servers()
	if len(urls) == 0 || e.InProcess() {
		return ""
	}
	var names []string
	for _, u := range urls {
		at, err := url.Parse(u)
		if err != nil { // ConnectEngine refuses it
			continue
		}
		name := at.Host + at.Path // without the user and password
		if ip := net.ParseIP(at.Hostname()); at.Hostname() == "localhost" || ip.IsLoopback() || ip.IsUnspecified() {
			name = machine + "/" + name
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
