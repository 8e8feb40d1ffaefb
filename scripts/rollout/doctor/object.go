package doctor

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/ownership"
	"rollout/shared/record"
)

// RoundTrip is how many bytes go to the bucket and back: enough for several
// parts of an upload.
const RoundTrip = 64 << 20

// cleaning bounds the removal of a check's object after its time is up.
const cleaning = 15 * time.Second

// ownObjects makes a probe of the bucket's objects, unless the bucket belongs to another
// installation, or to another account.
func ownObjects(b ownership.Bucket, objects probe) probe {
	return func(ctx context.Context) (found string, err error) {
		if err := b.Check(ctx); err != nil {
			return "", err
		}
		return objects(ctx)
	}
}

// object puts some bytes into the bucket and reads them again.
func object(blobs blob.Store) func(context.Context) (string, error) {
	return func(ctx context.Context) (found string, err error) {
		want := []byte("rollout cloud doctor " + crand.Text())
		key, remove := scratch(ctx, blobs)
		info, err := blobs.Put(ctx, key, bytes.NewReader(want), blob.PutOptions{CreateOnly: true})
		if err != nil {
			return "", fault.Wrap(err, "put")
		}
		defer func() { err = errors.Join(err, remove()) }()
		r, _, err := blobs.Get(ctx, key, blob.GetOptions{Version: info.Version})
		if err != nil {
			return "", fault.Wrap(err, "get")
		}
		defer r.Close() // read only: nothing can be lost
		got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1))
		if err != nil {
			return "", fault.Wrap(err, "get")
		}
		if !bytes.Equal(got, want) {
			return "", fault.New(fault.Corrupt, "get: the bytes differ from those that were put")
		}
		return "", nil
	}
}

// contentID streams size random bytes to the bucket and back, and compares the
// content ids.
func contentID(blobs blob.Store, size int64) func(context.Context) (string, error) {
	return func(ctx context.Context) (found string, err error) {
		var seed [32]byte
		if _, err := crand.Read(seed[:]); err != nil {
			return "", fault.WithKind(fault.Internal, err, "draw random bytes")
		}
		key, remove := scratch(ctx, blobs)
		sent := identity.NewHasher()
		random := io.LimitReader(rand.NewChaCha8(seed), size)
		info, err := blobs.Put(ctx, key, io.TeeReader(random, sent), blob.PutOptions{CreateOnly: true})
		if err != nil {
			return "", fault.Wrap(err, "put")
		}
		defer func() { err = errors.Join(err, remove()) }()
		r, _, err := blobs.Get(ctx, key, blob.GetOptions{Version: info.Version})
		if err != nil {
			return "", fault.Wrap(err, "get")
		}
		defer r.Close() // read only: nothing can be lost
		came := identity.NewHasher()
		n, err := io.Copy(came, r)
		if err != nil {
			return "", fault.Wrap(err, "get")
		}
		if want, got := sent.Sum(), came.Sum(); n != size || got != want {
			return "", fault.New(fault.Corrupt, "get: got %d bytes with the content id %s, but put %d bytes with %s",
				n, got, size, want)
		}
		return "", nil
	}
}

// scratch returns a unique key and a function that removes its object, also after
// the check's time is up.
func scratch(ctx context.Context, blobs blob.Store) (key string, remove func() error) {
	key = record.PendingPrefix + "doctor-" + crand.Text()
	return key, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
		defer cancel()
		return fault.Wrap(blobs.Delete(ctx, key, ""), "delete")
	}
}
