// Package document is the port to small documents under compare-and-swap:
// DynamoDB, Firestore or SQLite.
//
// Compare-and-swap on an opaque revision is the only primitive; every
// invariant of rollout rests on it. Every driver passes package documenttest.
// The port states the smallest limit of all its stores: keys are printable
// ASCII (0x21 to 0x7E) of at most 512 bytes, values at most 256 KiB. The port has
// no transactions, no queries except by key prefix, and no clocks.
package document

import "context"

// Limits of the port.
const (
	MaxKey   = 512       // bytes of a key
	MaxValue = 256 << 10 // bytes of a value
	MaxKeys  = 1000      // keys of one GetMany
	MaxPage  = 1000      // documents of one List
)

// Revision is an opaque token of one write of one document. The empty
// revision stands for an absent document.
type Revision string

// Doc is a document as read. Value belongs to the caller.
type Doc struct {
	Key      string
	Value    []byte
	Revision Revision
}

// Store holds documents. All methods may be called concurrently; reads see
// every write that returned before they began.
type Store interface {
	// Get returns the document, or NotFound.
	Get(ctx context.Context, key string) (Doc, error)
	// GetMany returns one Doc for each key, in the order of keys. An absent
	// document has an empty revision and a nil value. At most 1,000 keys.
	GetMany(ctx context.Context, keys []string) ([]Doc, error)
	// Create writes a document that must not exist, else Conflict.
	Create(ctx context.Context, key string, value []byte) (Revision, error)
	// Replace writes a document whose revision must still be rev, else
	// Conflict (also if it is gone).
	Replace(ctx context.Context, key string, value []byte, rev Revision) (Revision, error)
	// Delete removes a document whose revision must still be rev, else
	// Conflict; absent is NotFound.
	Delete(ctx context.Context, key string, rev Revision) error
	// List returns up to limit documents (1 to 1,000) whose key starts with
	// prefix and sorts after `after`, in byte order of keys. A page may be
	// shorter than limit, because stores bound its bytes; only an empty page is
	// the end. All reads page after page.
	List(ctx context.Context, prefix, after string, limit int) ([]Doc, error)
	// Ping reports whether the store can be reached.
	Ping(ctx context.Context) error
}

// Watcher is an optional feature of a Store: a wake-up hint that something
// under prefix may have changed. Hints may be spurious or merged, never the
// only path of progress. The channel is closed when ctx ends.
type Watcher interface {
	Watch(ctx context.Context, prefix string) <-chan struct{}
}
