// Package promptsfile reads prompts files on this machine for commands that look at them before a run: unpacked, and no
// further than a run reads them. It writes copies of them, and nothing else.
package promptsfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"rollout/shared/fault"
	"rollout/shared/input"
)

// Open opens a prompts file, unpacked as its name says. Reading is Invalid if the file is damaged, or if it is packed
// and unpacks to more bytes than the limit, input.max_unpacked; 0 is no limit. It is Canceled if the context ends.
func Open(ctx context.Context, path string, limit int64) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "read the prompts", Err: err,
			Remedy: "name a readable file of JSON lines"}
	}
	packed, _ := input.Packing(path)
	u, err := input.Unpack(f, packed)
	if err != nil {
		return nil, errors.Join(fault.WithKind(fault.Invalid, err, "read %s", path), f.Close())
	}
	return &reader{ctx: ctx, path: path, file: f, unpacked: u, bounded: packed != "" && limit > 0, limit: limit}, nil
}

// reader reads the unpacked content of a file.
type reader struct {
	ctx         context.Context
	path        string
	file        *os.File
	unpacked    io.ReadCloser
	bounded     bool
	read, limit int64
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, fault.WithKind(fault.Canceled, err, "read %s", r.path)
	}
	n, err := r.unpacked.Read(b)
	if r.read += int64(n); r.bounded && r.read > r.limit {
		return n, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s unpacks to more than %d bytes", r.path, r.limit),
			Remedy: "raise input.max_unpacked, or split the file"}
	}
	if err != nil && err != io.EOF {
		err = fault.WithKind(fault.Invalid, err, "read %s", r.path)
	}
	return n, err
}

func (r *reader) Close() error { return errors.Join(r.unpacked.Close(), r.file.Close()) }

// Copy writes the unpacked content of the file to a new file. It has the errors of Open, and Unwritable.
func Copy(ctx context.Context, to, path string, limit int64) (err error) {
	in, err := Open(ctx, path, limit)
	if err != nil {
		return err
	}
	defer in.Close() // opened for reading: closing loses nothing
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Unwritable(err, "a copy of "+path)
	}
	defer func() { err = errors.Join(err, Unwritable(out.Close(), "a copy of "+path)) }()
	_, err = io.Copy(out, in)
	return Unwritable(err, "a copy of "+path)
}

// Unwritable returns the error of writing what into a temporary folder, which is Exhausted. It returns errors of Open
// and nil as they are.
func Unwritable(err error, what string) error {
	if err == nil || fault.Is(err, fault.Invalid) || fault.Is(err, fault.Canceled) {
		return err
	}
	return &fault.Error{Kind: fault.Exhausted, Err: fmt.Errorf("write %s: %w", what, err),
		Remedy: "free space, or name another folder with TMPDIR"}
}
