package process

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// Waits for an engine that is starting.
const (
	askEvery = 200 * time.Millisecond
	askFor   = 15 * time.Second
)

// ResolveEngine completes a deployment: with the engine tiny if it names none, and
// with pools if it declares none: one named default of the given model or, if that is
// empty, one for each model that the engine reports. A model that no pool serves
// is an error.
func ResolveEngine(ctx context.Context, d config.Deployment, model string, secrets secret.Store, log *slog.Logger) (
	config.Deployment, error) {
	if model == "" && len(d.InferPools()) > 0 && len(sharedPools(d)) == 0 {
		return d, nil // [engine] has no pool
	}
	if servers := d.Engine.Servers(); len(servers) == 0 || servers[0] == config.EngineTiny {
		return resolveTiny(d, model)
	}
	if answering := d.InferPools(); len(answering) > 0 {
		if model != "" && !serves(answering, model) {
			return d, &fault.Error{Kind: fault.Invalid,
				Err:    fmt.Errorf("the config declares pools, but none serves the model %q", model),
				Remedy: "add a [[pool]] for it, or leave --model out"}
		}
		return d, nil
	}
	models := []string{model}
	if model == "" {
		var err error
		if models, err = askModels(ctx, d, secrets, log); err != nil {
			return d, err
		}
	}
	d.Pools = append(poolsOf(ctx, models, log), d.Pools...)
	return d, nil
}

// maxServed is the most models of a server that get a pool each without a config.
const maxServed = 8

// poolsOf returns a pool for each model that a server lists. The first one is named
// default, and takes the runs that name no model. Of a server that lists very many, only
// the first model gets a pool.
func poolsOf(ctx context.Context, models []string, log *slog.Logger) []config.Pool {
	pools := []config.Pool{{Name: config.DefaultPool, Model: models[0]}}
	if len(models) == 1 {
		return pools
	}
	if len(models) > maxServed {
		log.WarnContext(ctx, "the engine serves many models, and only the first one is used: declare a [[pool]] for others",
			"model", models[0], "models", listed(models))
		return pools
	}
	for _, model := range models[1:] {
		pools = append(pools, config.Pool{Name: poolName(model, pools), Model: model})
	}
	log.InfoContext(ctx, "the engine serves several models, each with a pool: runs name theirs with model.uri",
		"model", models[0], "models", listed(models))
	return pools
}

// poolName returns a name for the pool of a model that none of the others has. Example:
// "qwen2-5-0-5b" for "Qwen/Qwen2.5-0.5B".
func poolName(model string, others []config.Pool) string {
	const most = 28 // leaves room for a number
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(model[strings.LastIndexByte(model, '/')+1:]))
	name = strings.Trim(name[:min(len(name), most)], "-")
	taken := func(p config.Pool) bool { return p.Name == name }
	for n, stem := 2, cmp.Or(name, "model"); name == "" || name == "train" || strings.HasSuffix(name, "-dead") ||
		slices.ContainsFunc(others, taken); n++ {
		name = fmt.Sprintf("%s-%d", stem, n)
	}
	return name
}

// resolveTiny completes a deployment of the built-in model. A pool of another model
// is an error.
func resolveTiny(d config.Deployment, model string) (config.Deployment, error) {
	b, err := weights.Shipped()
	if err != nil {
		return d, err
	}
	if len(d.InferPools()) == 0 {
		d.Pools = append([]config.Pool{{Name: config.DefaultPool, Model: cmp.Or(model, b.Name)}}, d.Pools...)
	}
	d.Pools = slices.Clone(d.Pools)
	for i, p := range d.Pools {
		if p.Engine != "" {
			continue
		}
		if p.Model != b.Name {
			return d, NoEngine("the model " + p.Model)
		}
		d.Pools[i].Revision = b.Digest
	}
	if model != "" && model != b.Name && !serves(d.InferPools(), model) {
		return d, NoEngine("the model " + model)
	}
	d.Engine = d.Engine.WithURLs([]string{config.EngineTiny})
	return d, nil
}

// sharedPools returns the inference pools that name no engine of their own.
func sharedPools(d config.Deployment) (out []config.Pool) {
	for _, p := range d.InferPools() {
		if p.Engine == "" {
			out = append(out, p)
		}
	}
	return out
}

func serves(pools []config.Pool, model string) bool {
	for _, p := range pools {
		if p.Model == model {
			return true
		}
	}
	return false
}

// askModels asks the engine for the names of its models. It retries for up to 15 s.
func askModels(ctx context.Context, d config.Deployment, secrets secret.Store, log *slog.Logger) ([]string, error) {
	e, err := ConnectEngine(ctx, d, secrets, log)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	deadline := time.NewTimer(askFor)
	defer deadline.Stop()
	for {
		model, err := e.Ready(ctx)
		switch {
		case err == nil && model == "":
			return nil, &fault.Error{Kind: fault.Invalid, Op: "the engine " + d.Engine.String() + " lists no model",
				Remedy: "name its model with --model, or in a [[pool]] of the config"}
		case err == nil:
			if lister, ok := e.(interface{ Models() []string }); ok && len(lister.Models()) > 0 {
				return lister.Models(), nil
			}
			return []string{model}, nil
		}
		if !fault.Retriable(err) {
			return nil, fault.Wrap(err, "ask the engine %s for its model", d.Engine)
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return nil, fault.WithKind(fault.Canceled, ctx.Err(), "ask the engine %s for its model", d.Engine)
		case <-deadline.C:
			return nil, &fault.Error{Kind: fault.Unavailable, Err: err,
				Op:     "the engine " + d.Engine.String() + " did not answer within " + askFor.String(),
				Remedy: "start it, or name its model with --model so that rollout waits for it"}
		}
	}
}
