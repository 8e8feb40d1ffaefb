package process

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
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
// with a pool named default if it declares none. That pool has the given model or,
// if that is empty, the model that the engine reports. A model that no pool serves
// is an error.
func ResolveEngine(ctx context.Context, d config.Deployment, model string, secrets secret.Store, log *slog.Logger) (
	config.Deployment, error) {
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
	if model == "" {
		var err error
		if model, err = askModel(ctx, d, secrets, log); err != nil {
			return d, err
		}
	}
	d.Pools = append([]config.Pool{{Name: "default", Model: model}}, d.Pools...)
	return d, nil
}

// resolveTiny completes a deployment of the built-in model. A pool of another model
// is an error.
func resolveTiny(d config.Deployment, model string) (config.Deployment, error) {
	b, err := weights.Shipped()
	if err != nil {
		return d, err
	}
	if len(d.InferPools()) == 0 {
		d.Pools = append([]config.Pool{{Name: "default", Model: cmp.Or(model, b.Name)}}, d.Pools...)
	}
	d.Pools = slices.Clone(d.Pools)
	for i, p := range d.Pools {
		if p.Model != b.Name {
			return d, NoEngine("the model " + p.Model)
		}
		d.Pools[i].Revision = b.Digest
	}
	if model != "" && model != b.Name {
		return d, NoEngine("the model " + model)
	}
	d.Engine = d.Engine.WithURLs([]string{config.EngineTiny})
	return d, nil
}

func serves(pools []config.Pool, model string) bool {
	for _, p := range pools {
		if p.Model == model {
			return true
		}
	}
	return false
}

// askModel asks the engine for the name of its model. It retries for up to 15 s.
func askModel(ctx context.Context, d config.Deployment, secrets secret.Store, log *slog.Logger) (string, error) {
	e, err := ConnectEngine(ctx, d, secrets, log)
	if err != nil {
		return "", err
	}
	defer e.Close()
	deadline := time.NewTimer(askFor)
	defer deadline.Stop()
	for {
		model, err := e.Ready(ctx)
		switch {
		case err == nil && model == "":
			return "", &fault.Error{Kind: fault.Invalid, Op: "the engine " + d.Engine.String() + " lists no model",
				Remedy: "name its model with --model, or in a [[pool]] of the config"}
		case err == nil:
			return model, nil
		}
		if !fault.Retriable(err) {
			return "", fault.Wrap(err, "ask the engine %s for its model", d.Engine)
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return "", fault.WithKind(fault.Canceled, ctx.Err(), "ask the engine %s for its model", d.Engine)
		case <-deadline.C:
			return "", &fault.Error{Kind: fault.Unavailable, Err: err,
				Op:     "the engine " + d.Engine.String() + " did not answer within " + askFor.String(),
				Remedy: "start it, or name its model with --model so that rollout waits for it"}
		}
	}
}
