package finalize

import (
	"bufio"
	"cmp"
	"context"
	"io"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// sink is an object being put while it is written.
type sink struct {
	*bufio.Writer // single rows are small for a pipe
	pipe          *pipe
	done          chan error
}

// pipe counts what goes through it.
type pipe struct {
	*io.PipeWriter
	length int64
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.PipeWriter.Write(b)
	p.length += int64(n)
	return n, err
}

// sinkBuffer is how much is gathered before it is put.
const sinkBuffer = 64 << 10

func (f *Finalizer) open(ctx context.Context, key string) *sink {
	r, w := io.Pipe()
	p := &pipe{PipeWriter: w}
	s := &sink{Writer: bufio.NewWriterSize(p, sinkBuffer), pipe: p, done: make(chan error, 1)}
	go func() {
		_, err := f.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
		if fault.Is(err, fault.Conflict) { // it is there, with the same bytes
			_, err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(err)
		s.done <- err
	}()
	return s
}

// finish ends the object, or drops it if there was an error.
func (s *sink) finish(err error) error {
	dropped := err != nil
	if !dropped {
		err = s.Flush()
	}
	s.pipe.CloseWithError(err) // without an error, it is the object's end
	put := <-s.done
	if dropped {
		return nil
	}
	return cmp.Or(put, err)
}
