package plan

import (
	"context"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// errPutOver interrupts the writer of an object that already exists.
var errPutOver = errors.New("the put is over")

// stream creates an object from what write writes. It interrupts write if the
// object already exists.
func (p *Planner) stream(ctx context.Context, key string, write func(io.Writer) error) error {
	_, err := p.streamed(ctx, key, write)
	return err
}

// streamWhole is stream for a write that also computes something: if it was
// interrupted, it is called again and runs to its end.
func (p *Planner) streamWhole(ctx context.Context, key string, write func(io.Writer) error) error {
	whole, err := p.streamed(ctx, key, write)
	if err == nil && !whole {
		return write(io.Discard)
	}
	return err
}

// streamed is stream; whole is false if write was interrupted.
func (p *Planner) streamed(ctx context.Context, key string, write func(io.Writer) error) (whole bool, err error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		done <- err
	}()
	err = p.put(ctx, key, r)
	r.CloseWithError(errPutOver)
	written := <-done
	if err == nil && written != nil && !errors.Is(written, errPutOver) {
		err = written // a Conflict of write itself, which put takes for one of the object
	}
	return written == nil, err
}

// put creates an object. An object that already exists has the same bytes.
func (p *Planner) put(ctx context.Context, key string, r io.Reader) error {
	_, err := p.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
