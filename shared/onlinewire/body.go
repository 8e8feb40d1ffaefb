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

// A client that sends a request may stop for silence, and may take readTime for all of it.
const (
	silence  = time.Minute
	readTime = 2 * time.Minute
)

// Bodies reads the bodies of requests into a bounded memory, which all requests of a process
// share. It is safe for concurrent use.
type Bodies struct{ room *semaphore.Weighted }

// NewBodies returns Bodies that hold up to 64 MiB.
func NewBodies() *Bodies { return &Bodies{semaphore.NewWeighted(maxBodies)} }

// Read reads the body of a request, of most bytes at most, which must not be over MaxBody. It
// waits up to wait for room. The caller calls release
// once when it needs the body no more. Without room it is Throttled. A body that is too long
// is Exhausted; one that breaks off, stops for a minute or takes longer than two is Invalid.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request, most int64, wait time.Duration) (
	body []byte, release func(), err error) {
	size := r.ContentLength
	if size < 0 || size > most {
		size = most // the reader below refuses a longer one
	}
	if err := b.acquire(r.Context(), size, wait); err != nil {
		return nil, nil, err
	}
	conn := http.NewResponseController(w)
	var out bytes.Buffer
	if r.ContentLength > 0 {
		out.Grow(int(size) + bytes.MinRead)
	}
	_, err = io.Copy(&out, &awaited{http.MaxBytesReader(w, r.Body, most), conn, time.Now().Add(readTime)})
	// From now on the server waits for the end of the connection: that the client has left.
	_ = conn.SetReadDeadline(time.Time{}) // recorders of tests have none
	if err != nil {
		b.room.Release(size)
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			return nil, nil, fault.New(fault.Exhausted, "the body is longer than %d MiB", most>>20)
		}
		return nil, nil, fault.WithKind(fault.Invalid, fmt.Errorf("the body breaks off: %w", err), "read the request")
	}
	body = out.Bytes()
	if r.ContentLength < 0 { // its length was not known before, and the buffer is longer than it
		body = bytes.Clone(body)
	}
	rest := size - int64(len(body))
	b.room.Release(rest)
	return body, func() { b.room.Release(size - rest) }, nil
}

// acquire waits for room.
func (b *Bodies) acquire(ctx context.Context, size int64, wait time.Duration) error {
	if b.room.TryAcquire(size) {
		return nil
	}
	waiting, stop := context.WithTimeout(ctx, wait)
	defer stop()
	switch {
	case b.room.Acquire(waiting, size) == nil:
		return nil
	case ctx.Err() != nil:
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for room for the body")
	}
	return fault.New(fault.Throttled, "requests of %d MiB are open already", maxBodies>>20)
}

// awaited is a body, each part of which must come within silence, and the last before until.
type awaited struct {
	io.Reader
	conn  *http.ResponseController
	until time.Time
}

func (a *awaited) Read(p []byte) (int, error) {
	next := time.Now().Add(silence)
	if a.until.Before(next) {
		next = a.until
	}
	_ = a.conn.SetReadDeadline(next)
	return a.Reader.Read(p)
}
