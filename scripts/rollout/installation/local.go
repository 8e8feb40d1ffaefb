package installation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/embedded/bucket"
	"rollout/shared/embedded/local"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/listen"
	"rollout/shared/secret"
)

// localPoll is how often a laptop's state is looked at.
const localPoll = 250 * time.Millisecond

func openLocal(ctx context.Context, p Location, o Options) (*Installation, error) {
	if o.AllowUninitialized {
		has, err := local.HasState(p.Dir)
		if err != nil {
			return nil, err
		}
		if !has {
			return openUninitialized(p, o)
		}
	}
	l, closeAll, err := local.OpenLocal(ctx, p.Dir, local.LocalOptions{Log: o.Log, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	return newLocal(p, o, l.Deployment, l.Ports, closeAll), nil
}

// openUninitialized opens the bucket of a folder whose state is not there yet.
func openUninitialized(p Location, o Options) (*Installation, error) {
	if info, err := os.Stat(p.Dir); err != nil || !info.IsDir() { // a misspelt one
		return nil, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no folder %s", p.Dir),
			Remedy: fmt.Sprintf("start `rollout up --dir %s` first, or name the folder that it runs in", p.Dir)}
	}
	d, err := local.ReadDeployment(p.Dir)
	if err != nil {
		return nil, err
	}
	bucket, err := bucket.Open(local.BucketDir(p.Dir), bucket.Options{Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	i := newLocal(p, o, d, host.Ports{Blobs: bucket, Clock: o.Clock, Log: o.Log}, bucket.Close)
	i.Uninitialized = true
	return i, nil
}

func newLocal(p Location, o Options, d config.Deployment, ports host.Ports, closeAll func() error) *Installation {
	dir := local.BucketDir(p.Dir)
	return &Installation{Location: p, Deployment: d, Ports: ports, Poll: localPoll, close: closeAll, Secrets: envSecrets(d, o.Getenv),
		path: func(key string) string { return filepath.Join(dir, filepath.FromSlash(key)) },
		store: func(ctx context.Context, file, key string, _ WrapReader) (blob.Info, error) {
			return bucket.PutFile(ctx, dir, file, key)
		}}
}

// envSecrets are the secrets of an installation on this machine.
func envSecrets(d config.Deployment, getenv func(string) string) secret.Store {
	return machine.EnvSecrets(append([]string{listen.TokenSecret}, d.Secrets...), func(variable string) (string, bool) {
		v := getenv(variable)
		return v, v != ""
	})
}
