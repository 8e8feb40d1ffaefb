// Package blob is the port to buckets of objects: S3, Cloud Storage or a
// directory.
//
// Every driver passes package blobtest. The port states the smallest limit of
// all its stores: keys are UTF-8, at most 512 bytes, '/'-separated, with no
// empty segment, none that begins with a dot (directories keep their own files
// under such names), none over 255 bytes and no control character; a key that
// is a folder of other keys may be refused as Invalid. CheckKey holds these
// rules. An object is immutable once put; a later put of the same key makes a new
// version. The port never deletes by listing, never retries and never interprets
// contents.
package blob

import (
	"context"
	"errors"
	"io"
	"time"
)

// MaxKey is the longest key, in bytes.
const MaxKey = 512

// ErrNotFile is in the chain of a NotFound error about a key at which a folder's bucket has
// something that is not a file, such as a folder: there is no object, but there is something.
var ErrNotFile = errors.New("it is not a regular file")

// Info describes one version of an object.
type Info struct {
	Key     string
	Size    int64
	Version string // opaque; equal versions mean equal bytes
	ModTime time.Time
}

// PutOptions are the conditions of a put.
type PutOptions struct {
	// CreateOnly fails with Conflict if the key exists; what exists is then durable.
	// Of any number of concurrent create-only puts exactly one succeeds.
	CreateOnly bool
	// IfVersion, if not empty, fails with Conflict unless the current version
	// is this one.
	IfVersion string
}

// GetOptions selects a version and a range.
type GetOptions struct {
	Version string // "" is the current version; a version that is gone is NotFound
	Offset  int64
	Length  int64 // 0 means to the end
}

// Range names a part of an object, for Join. Length 0 means to the end.
type Range struct {
	Key            string
	Offset, Length int64
}

// Store is a bucket. All methods may be called concurrently.
type Store interface {
	// Put streams r into an object, in memory bounded by the driver's part
	// size. The object appears whole or not at all, and is durable when Put
	// returns. An error of r is returned as it is and leaves nothing visible.
	Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Info, error)
	// Get opens an object for reading. NotFound if the key or version is
	// absent. A range past the end yields the bytes up to the end. The reader ends
	// with io.EOF. No other error that it returns matches io.EOF or
	// io.ErrUnexpectedEOF, because callers take those for the end of the object.
	Get(ctx context.Context, key string, o GetOptions) (io.ReadCloser, Info, error)
	// Stat describes the object (the given version of it, or "" for current).
	Stat(ctx context.Context, key, version string) (Info, error)
	// List returns up to limit objects whose key starts with prefix and sorts
	// after `after`, in byte order of keys. Fewer than limit (at most MaxList)
	// means that the list is complete.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)
	// Join makes dst, create-only, of the ranges in order, without passing the
	// bytes through the caller where the store can. A range that is not wholly
	// within its object is Invalid. It takes 1 to MaxParts ranges.
	Join(ctx context.Context, dst string, parts []Range) (Info, error)
	// Copy makes dst, create-only, a copy of the object src.
	Copy(ctx context.Context, dst, src string) (Info, error)
	// Delete removes the key; absent is success. With a version it removes
	// only that current version, else Conflict.
	Delete(ctx context.Context, key, version string) error
}

// SkippedLister is an optional feature of a Store whose bucket may have entries that are
// not objects, such as symbolic links in a folder. List leaves them out silently.
type SkippedLister interface {
	// ListSkipped returns the first entries under the prefix, up to limit, that List
	// leaves out though their names are not hidden.
	ListSkipped(ctx context.Context, prefix string, limit int) ([]Skipped, error)
}

// Skipped is an entry of a bucket that is not an object.
type Skipped struct {
	Key string
	Why error // with a remedy
}

// Settler is an optional feature of a Store whose objects other programs may write in place,
// such as files of a folder.
type Settler interface {
	// Unsettled says for people why the object may still be written: a program has it open
	// for writing, or it has just changed; "" for one that is complete. It looks at the
	// object as it is now. NotFound if it is gone.
	Unsettled(ctx context.Context, key string) (why string, err error)
}

// Upload is an object that appeared in a watched bucket.
type Upload struct {
	Info
	Found Found
}

// Found says in which way an object appeared, if it may be one that was there before.
type Found string

// The ways. An object of either may have the bytes of an earlier one under a new version.
const (
	Written  Found = ""         // while the bucket was watched
	Kept     Found = "kept"     // it was there when the watch began
	Returned Found = "returned" // while the bucket was watched; its key had an object before, and then none
)
