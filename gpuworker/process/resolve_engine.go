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

// Waits for an engine that is being started.
const (
	askEvery = 200 * time.Millisecond
	askFor   = 15 * time.Second
)

// ResolveEngine completes a deployment by the engine, tiny if nobody named one, and by
// the pool that its engine serves, if it declares none: a pool named default
// with the given model or, if that is empty, the one that the engine names when
// asked.
func ResolveEngine(ctx context.Context, d config.Deployment, model string, secrets secret.Store, log *slog.Logger) (config.Deployment, error) {
	if servers := d.Engine.Servers(); len(servers) == 0 || servers[0] == config.EngineTiny {
		return serveTiny(d, model)
	}
	if answering := d.InferPools(); len(answering) > 0 {
		if model != "" && !serves(answering, model) {
			return d, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the config declares pools, and none of them serves the model %q", model),
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

// serveTiny completes a deployment of the model that is built in. It stands in
// for no other model.
func serveTiny(d config.Deployment, model string) (config.Deployment, error) {
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

// askModel asks the engine for the name of the model that it serves.
func askModel(ctx context.Context, d config.Deployment, secrets secret.Store, log *slog.Logger) (string, error) {
	e, err := Engine(ctx, d, secrets, log)
	if err != nil {
		return "", err
	}
	defer e.Close()
	deadline := time.NewTimer(askFor)
	defer deadline.Stop()
	for {
		model, err := e.Ready(ctx)
		if err == nil {
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
			return "", &fault.Error{Kind: fault.Unavailable, Op: "the engine " + d.Engine.String() + " did not answer within " + askFor.String(), Err: err,
				Remedy: "start it, or name its model with --model to let rollout wait for it"}
		}
	}
}
