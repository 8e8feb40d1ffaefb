package blob

import (
	"context"
	"io"

	"rollout/shared/fault"
	"rollout/shared/retry"
)

// Reliable returns the store with what it reads going on where a connection
// broke: who reads an object for minutes, or hundreds of them beside each
// other, need not begin again for one of them. It goes on with the same version
// only, and gives up when the policy's tries have brought no byte.
//
// Nothing else is repeated: what a Put reads is gone by then.
func Reliable(s Store, p retry.Policy) Store { return &reliable{s, p} }

type reliable struct {
	Store
	policy retry.Policy
}

func (r *reliable) Get(ctx context.Context, key string, o GetOptions) (io.ReadCloser, Info, error) {
	body, info, err := r.Store.Get(ctx, key, o)
	if err != nil {
		return nil, info, err
	}
	return &reading{ReadCloser: body, ctx: ctx, from: r, info: info, o: o}, info, nil
}

// reading is what is read of an object.
type reading struct {
	io.ReadCloser
	ctx  context.Context
	from *reliable
	info Info
	o    GetOptions // of what is left
	vain int        // bodies that broke, one after the other, without a byte
}

func (r *reading) Read(b []byte) (int, error) {
	for {
		n, err := r.ReadCloser.Read(b)
		if n > 0 {
			r.vain = 0
			r.o.Offset += int64(n)
			if r.o.Length > 0 {
				if r.o.Length -= int64(n); r.o.Length == 0 { // else it would mean all
					r.o.Offset = r.info.Size
				}
			}
		}
		switch {
		case err == nil || !fault.Retriable(err):
			return n, err
		case n > 0:
			return n, nil // the next Read says it again
		}
		if r.vain++; r.vain >= r.from.policy.MaxTries() {
			return 0, err
		}
		if err := r.goOn(err); err != nil {
			return 0, err
		}
	}
}

// goOn opens what is left, after the fault.
func (r *reading) goOn(broken error) error {
	var other bool
	err := r.from.policy.Do(r.ctx, func(try int) error {
		if try == 0 {
			return broken
		}
		body, info, err := r.from.Store.Get(r.ctx, r.info.Key, r.o)
		if err != nil {
			return err
		}
		if other = info.Version != r.info.Version; other {
			return body.Close()
		}
		_ = r.ReadCloser.Close() // it is broken
		r.ReadCloser = body
		return nil
	})
	if err == nil && other {
		return broken
	}
	return err
}
