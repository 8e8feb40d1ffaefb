package rollout

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// create writes an object, unless it exists: then it has the same bytes.
func create(ctx context.Context, blobs blob.Store, key string, b []byte) error {
	_, err := blobs.Put(ctx, key, bytes.NewReader(b), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// object is an object that is created while it is written.
type object struct {
	*bufio.Writer
	pipe *io.PipeWriter
	done chan error
}

// open begins to create an object. If it exists, what is written is dropped: it has the
// same bytes.
func open(ctx context.Context, blobs blob.Store, key string) *object {
	r, w := io.Pipe()
	o := &object{Writer: bufio.NewWriterSize(w, bufferSize), pipe: w, done: make(chan error, 1)}
	go func() {
		_, err := blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
		if fault.Is(err, fault.Conflict) {
			_, err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(err)
		o.done <- err
	}()
	return o
}

// finish completes the object, or drops it if err is not nil. It returns the errors of
// creating it.
func (o *object) finish(err error) error {
	dropped := err != nil
	if !dropped {
		err = o.Flush()
	}
	o.pipe.CloseWithError(err) // nil is the object's end
	put := <-o.done
	if dropped {
		return nil
	}
	return cmp.Or(put, err)
}

// stream creates an object of what write writes.
func stream(ctx context.Context, blobs blob.Store, key string, write func(io.Writer) error) error {
	o := open(ctx, blobs, key)
	err := write(o)
	return errors.Join(err, o.finish(err))
}

// encode returns v as JSON. Text in it stays readable: < and & need no escapes outside of
// HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // the types of this package encode
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// bufferSize is how many bytes are read or written at once.
const bufferSize = 64 << 10

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
