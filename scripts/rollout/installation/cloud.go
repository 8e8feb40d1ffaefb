package installation

import (
	"context"
	"os"
	"time"

	"rollout/shared/aws/stack"
	"rollout/shared/blob"
	"rollout/shared/fault"
)

// cloudPoll is how often a stack in a cloud is asked about a run.
const cloudPoll = 2 * time.Second

func openCloud(ctx context.Context, p Location, o Options) (*Installation, error) {
	d, err := p.deployment()
	if err != nil {
		return nil, err
	}
	s, err := stack.OpenStack(ctx, d, stack.StackOptions{Log: o.Log, Clock: o.Clock, UseServiceClock: true})
	if err != nil {
		return nil, err
	}
	prefix := "s3://" + d.Bucket + "/" + d.Cloud.S3.Prefix
	return &Installation{Location: p, Deployment: s.Deployment, Ports: s.Ports, Secrets: s.Secrets, Poll: cloudPoll,
		path: func(key string) string { return prefix + key },
		store: func(ctx context.Context, file, key string, through WrapReader) (blob.Info, error) {
			return storeFile(ctx, s.Ports.Blobs, file, key, through)
		},
		close: func() error { return nil }}, nil
}

// storeFile streams a file into a bucket.
func storeFile(ctx context.Context, bucket blob.Store, file, key string, through WrapReader) (blob.Info, error) {
	f, err := os.Open(file)
	if err != nil {
		return blob.Info{}, fault.WithKind(fault.Invalid, err, "submit")
	}
	defer f.Close() // read only: nothing can be lost
	stat, err := f.Stat()
	if err != nil {
		return blob.Info{}, fault.WithKind(fault.Invalid, err, "submit")
	}
	info, err := bucket.Put(ctx, key, through(f, stat.Size()), blob.PutOptions{})
	return info, fault.Wrap(err, "submit %s as %s", file, key)
}
