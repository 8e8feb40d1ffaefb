package installation

import (
	"context"
	"io"
	"log/slog"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/secret"
)

// Installation is an open one. Its Ports, with retries, are all that most need.
type Installation struct {
	Location
	Deployment config.Deployment
	Ports      host.Ports
	Secrets    secret.Store // of the names that the deployment allows
	// Uninitialized is a laptop's folder in which `up` was never started: its ports
	// have no documents and no queues.
	Uninitialized bool
	// Poll is how often it is asked about a run that is watched: a cloud sends
	// a bill for every answer.
	Poll time.Duration

	path  func(key string) string
	store func(ctx context.Context, file, key string, through WrapReader) (blob.Info, error)
	close func() error
}

// Options say how to open.
type Options struct {
	Log    *slog.Logger
	Clock  clock.Clock
	Getenv func(string) string
	// AllowUninitialized takes a folder in which `up` was never started, too.
	AllowUninitialized bool
}

// WrapReader shows the bytes of a file of that size as they are read; it may
// return the reader as it is.
type WrapReader func(r io.Reader, size int64) io.Reader

// Open opens the installation at a place. One that is not there is NotFound; a
// stack in a cloud is believed to be there until it is asked something.
func Open(ctx context.Context, p Location, o Options) (*Installation, error) {
	if p.Cloud == "" {
		return openLocal(ctx, p, o)
	}
	return openCloud(ctx, p, o)
}

// Path is where people find an object of the bucket.
func (i *Installation) Path(key string) string { return i.path(key) }

// Store puts a file into the bucket, in the place of what has the key already.
// An object under prompts/ is a run from then on.
func (i *Installation) Store(ctx context.Context, file, key string, through WrapReader) (blob.Info, error) {
	return i.store(ctx, file, key, through)
}

// Close closes it, once.
func (i *Installation) Close() error { return i.close() }
