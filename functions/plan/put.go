package plan

import (
	"context"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// errPutOver cuts off the writer of an object that needs no more bytes.
var errPutOver = errors.New("the put is over")

// stream puts what write writes, create-only. Write is cut off if the object is
// there already.
func (p *Planner) stream(ctx context.Context, key string, write func(io.Writer) error) error {
	_, err := p.streamed(ctx, key, write)
	return err
}

// streamWhole is stream for what counts as well: the last call of write runs to
// its end.
func (p *Planner) streamWhole(ctx context.Context, key string, write func(io.Writer) error) error {
	whole, err := p.streamed(ctx, key, write)
	if err == nil && !whole {
		return write(io.Discard)
	}
	return err
}

// streamed puts what write writes; whole is false if write was cut off.
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
	return <-done == nil, err
}

// put creates an object; one that is there has the same bytes.
func (p *Planner) put(ctx context.Context, key string, r io.Reader) error {
	_, err := p.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
