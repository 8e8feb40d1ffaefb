package input

import (
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"rollout/shared/fault"
)

// Packings of input files.
const (
	Gzip = "gzip"
	Zstd = "zstd"
)

// maxWindow bounds what a zstd frame may ask to be kept in memory.
const maxWindow = 32 << 20

// Unpack returns a reader of what r holds, packed or not. Closing it does not
// close r. Errors of a broken archive are Corrupt.
func Unpack(r io.Reader, packed string) (io.ReadCloser, error) {
	switch packed {
	case "":
		return io.NopCloser(r), nil
	case Gzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, broken(err, "unpack gzip")
		}
		return corrupting{z, z.Close}, nil
	case Zstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, broken(err, "unpack zstd")
		}
		return corrupting{z, func() error { z.Close(); return nil }}, nil
	}
	return nil, fault.New(fault.Invalid, "unknown packing %q", packed)
}

// corrupting makes a decoder's errors Corrupt.
type corrupting struct {
	r     io.Reader
	close func() error
}

func (c corrupting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil && err != io.EOF {
		err = broken(err, "unpack")
	}
	return n, err
}

// broken is the fault of an archive that can't be read to its end. A fault of
// what holds the archive stays what it is: it may pass.
func broken(err error, op string) error {
	if fault.KindOf(err) != fault.Internal {
		return fault.Wrap(err, "%s", op)
	}
	return &fault.Error{Kind: fault.Corrupt, Op: op, Err: err, Remedy: "the archive is damaged, cut short or of another kind: pack the file again"}
}

func (c corrupting) Close() error { return c.close() }
