package command

import (
	"context"
	"io"
	"time"

	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

const (
	maxModelConfig = 4 << 20
	// warnWithin bounds how long a submit waits for what is known of the pools' models.
	warnWithin = 3 * time.Second
)

// modelsOf returns where the configs of a deployment's models are found: at the hub, and
// in buckets of the provider.
func (e *Env) modelsOf(provider cloud.Provider, d config.Deployment) poolcheck.Models {
	m := poolcheck.FromEnvironment(e.Getenv)
	m.Object = func(ctx context.Context, bucket, key string) (text []byte, err error) {
		blobs, err := e.openBucket(ctx, provider, d, bucket)
		if err != nil {
			return nil, err
		}
		r, _, err := blobs.Get(ctx, key, blob.GetOptions{})
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.Close() }() // it is only read
		text, err = io.ReadAll(io.LimitReader(r, maxModelConfig))
		return text, fault.WithKind(fault.Unavailable, err, "read %s", key)
	}
	return m
}

// warnOfPools says which pools of a cloud's installation will not start to serve. It does
// not wait long for what the hub says of their models, and refuses nothing: a pool that
// already has workers shows that it works.
func (e *Env) warnOfPools(ctx context.Context, d config.Deployment) error {
	if !d.Cloud.Configured() || !poolcheck.Readable(d) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warnWithin)
	defer cancel()
	for _, problem := range poolcheck.Problems(poolcheck.FromEnvironment(e.Getenv).CheckAll(ctx, d)) {
		if err := e.say("warning: machines of the pool %s", problem); err != nil {
			return err
		}
	}
	return nil
}
