package blob

import (
	"context"
	"io"

	"rollout/shared/fault"
	"rollout/shared/retry"
)

// Reliable returns the store with readers that resume where a connection broke,
// so that a caller who reads an object for minutes does not begin again. A reader
// resumes with the same version only, and fails when the policy's tries brought no
// byte.
//
// Other calls are not repeated: a Put has consumed its reader by then.
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

// reading is a reader that resumes.
type reading struct {
	io.ReadCloser
	ctx  context.Context
	from *reliable
	info Info
	o    GetOptions // of the rest
	vain int        // bodies in a row that broke without a byte
}

func (r *reading) Read(b []byte) (int, error) {
	for {
		n, err := r.ReadCloser.Read(b)
		if n > 0 {
			r.vain = 0
			r.o.Offset += int64(n)
			if r.o.Length > 0 {
				if r.o.Length -= int64(n); r.o.Length == 0 { // 0 would mean to the end
					r.o.Offset = r.info.Size
				}
			}
		}
		switch {
		case err == nil || !fault.Retriable(err):
			return n, err
		case n > 0:
			return n, nil // the next Read reports the error
		}
		if r.vain++; r.vain >= r.from.policy.MaxTries() {
			return 0, err
		}
		if err := r.resume(err); err != nil {
			return 0, err
		}
	}
}

// resume opens the rest of the object after the fault.
func (r *reading) resume(broken error) error {
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
