package input

import (
	"context"
	"io"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// OpenPinned opens a range of a pinned version of an input. If the object does not
// exist, it returns NotFound. If only another version exists, it returns Corrupt
// with the class input_changed.
func OpenPinned(ctx context.Context, blobs blob.Store, key string, o blob.GetOptions) (io.ReadCloser, error) {
	r, _, err := blobs.Get(ctx, key, o)
	if !fault.Is(err, fault.NotFound) {
		return r, fault.Wrap(err, "open input %s", key)
	}
	switch _, statErr := blobs.Stat(ctx, key, ""); {
	case statErr == nil:
		return nil, Changed(key)
	case !fault.Is(statErr, fault.NotFound): // unknown: the store does not answer
		return nil, fault.Wrap(statErr, "open input %s", key)
	}
	return nil, gone(key, err)
}

// OpenPlanned opens a range of an input for a caller who verifies the bytes: of the
// pinned version or, if that is gone, of the one that is there now. A folder that was
// restored or copied has its objects under other versions.
func OpenPlanned(ctx context.Context, blobs blob.Store, key string, o blob.GetOptions) (io.ReadCloser, error) {
	r, err := OpenPinned(ctx, blobs, key, o)
	if fault.ClassOf(err) != fault.InputChanged {
		return r, err
	}
	o.Version = ""
	r, _, err = blobs.Get(ctx, key, o)
	if fault.Is(err, fault.NotFound) {
		return nil, gone(key, err)
	}
	return r, fault.Wrap(err, "open input %s", key)
}

// Changed is the error of an input that has other bytes than planned.
func Changed(key string) error {
	return &fault.Error{Kind: fault.Corrupt, Class: fault.InputChanged,
		Op:     "the input " + key + " is no longer what was planned",
		Remedy: "submit the new file as a run of its own"}
}

// gone is the error of an input that does not exist.
func gone(key string, err error) error {
	return &fault.Error{Kind: fault.NotFound, Err: err, Op: "the input " + key + " is gone",
		Remedy: "put the same file back and resume the run"}
}
