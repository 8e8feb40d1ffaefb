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

// maxWindow bounds the memory that a zstd frame may request, in bytes.
const maxWindow = 32 << 20

// Unpack returns a reader of the unpacked content of r. packed is Gzip, Zstd or ""
// for content that is not packed. Closing the reader does not close r. Errors of a
// damaged archive are Corrupt, and errors of r keep their kind.
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

// corrupting gives the errors of a decoder the kind Corrupt.
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

// broken returns the fault of an archive that cannot be read to its end. A fault of
// the store keeps its kind, because it may be temporary.
func broken(err error, op string) error {
	if fault.KindOf(err) != fault.Internal {
		return fault.Wrap(err, "%s", op)
	}
	return &fault.Error{Kind: fault.Corrupt, Op: op, Err: err,
		Remedy: "the archive is damaged, cut short or of another kind: pack the file again"}
}

func (c corrupting) Close() error { return c.close() }
