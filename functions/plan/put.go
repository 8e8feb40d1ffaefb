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

// stream puts what write writes, create-only. Write always runs to its end,
// since it counts as well.
func (p *Planner) stream(ctx context.Context, key string, write func(io.Writer) error) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		done <- err
	}()
	putErr := p.put(ctx, key, r)
	r.CloseWithError(errPutOver)
	writeErr := <-done
	if putErr == nil && writeErr != nil { // the object was there already
		return write(io.Discard)
	}
	return putErr
}

// put creates an object; one that is there has the same bytes.
func (p *Planner) put(ctx context.Context, key string, r io.Reader) error {
	_, err := p.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
