package finalize

import (
	"bufio"
	"cmp"
	"context"
	"io"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// sink is an object that is uploaded while it is written.
type sink struct {
	*bufio.Writer // batches rows, which are small for a pipe
	written       uint64
	pipe          *pipe
	done          chan error
}

// pipe counts the bytes that pass through it.
type pipe struct {
	*io.PipeWriter
	length int64
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.PipeWriter.Write(b)
	p.length += int64(n)
	return n, err
}

// Write adds to the object.
func (s *sink) Write(b []byte) (int, error) {
	n, err := s.Writer.Write(b)
	s.written += uint64(n)
	return n, err
}

// sinkBuffer is how many bytes are buffered before they are uploaded.
const sinkBuffer = 64 << 10

// open begins to create an object. If it exists, what is written is discarded:
// it has the same bytes.
func (f *Finalizer) open(ctx context.Context, key string) *sink {
	r, w := io.Pipe()
	p := &pipe{PipeWriter: w}
	s := &sink{Writer: bufio.NewWriterSize(p, sinkBuffer), pipe: p, done: make(chan error, 1)}
	go func() {
		_, err := f.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
		if fault.Is(err, fault.Conflict) {
			_, err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(err)
		s.done <- err
	}()
	return s
}

// finish completes the object, or drops it if err is not nil. It returns the
// errors of the upload.
func (s *sink) finish(err error) error {
	dropped := err != nil
	if !dropped {
		err = s.Flush()
	}
	s.pipe.CloseWithError(err) // nil is the object's end
	put := <-s.done
	if dropped {
		return nil
	}
	return cmp.Or(put, err)
}
