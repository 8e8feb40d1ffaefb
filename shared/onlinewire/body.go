package onlinewire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"rollout/shared/fault"
)

// maxBodies bounds the bytes of all bodies that a process holds at once.
const maxBodies = 2 * MaxBody

// silence is the longest time without a byte of a client that sends a request.
const silence = time.Minute

// Bodies reads the bodies of requests into a bounded memory, which all requests of a process
// share. It is safe for concurrent use.
type Bodies struct{ room *semaphore.Weighted }

// NewBodies returns Bodies that hold up to 64 MiB.
func NewBodies() *Bodies { return &Bodies{semaphore.NewWeighted(maxBodies)} }

// Read reads the body of a request. It waits for room. The caller calls release once when it
// needs the body no more. A body that is too long is Exhausted, and one that breaks off or
// stops for a minute is Invalid.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	size := r.ContentLength
	if size < 0 || size > MaxBody {
		size = MaxBody // the reader below refuses a longer one
	}
	if err := b.room.Acquire(r.Context(), size); err != nil {
		return nil, nil, fault.WithKind(fault.Canceled, context.Cause(r.Context()), "wait for room for the body")
	}
	conn := http.NewResponseController(w)
	var out bytes.Buffer
	if r.ContentLength > 0 {
		out.Grow(int(size) + bytes.MinRead)
	}
	_, err = io.Copy(&out, &awaited{http.MaxBytesReader(w, r.Body, MaxBody), conn})
	// From now on the server waits for the end of the connection: that the client has left.
	_ = conn.SetReadDeadline(time.Time{}) // recorders of tests have none
	if err != nil {
		b.room.Release(size)
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			return nil, nil, fault.New(fault.Exhausted, "the body is longer than %d MiB", MaxBody>>20)
		}
		return nil, nil, fault.WithKind(fault.Invalid, fmt.Errorf("the body breaks off: %w", err), "read the request")
	}
	return out.Bytes(), func() { b.room.Release(size) }, nil
}

// awaited is a body, each part of which must come within silence.
type awaited struct {
	io.Reader
	conn *http.ResponseController
}

func (a *awaited) Read(p []byte) (int, error) {
	_ = a.conn.SetReadDeadline(time.Now().Add(silence))
	return a.Reader.Read(p)
}
