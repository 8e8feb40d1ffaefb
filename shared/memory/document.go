package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// Documents is a document.Store and document.Watcher in memory. Use NewDocuments to
// create one. It is safe for concurrent use.
type Documents struct {
	mu       sync.Mutex
	docs     map[string]document.Doc
	keys     []string // sorted
	writes   uint64
	watchers map[chan struct{}]string // with their prefix
}

// NewDocuments returns an empty store.
func NewDocuments() *Documents {
	return &Documents{docs: map[string]document.Doc{}, watchers: map[chan struct{}]string{}}
}

// Get returns a copy of the document.
func (s *Documents) Get(ctx context.Context, key string) (document.Doc, error) {
	if err := cmp.Or(document.CheckKey(key), canceled(ctx, "get document "+key)); err != nil {
		return document.Doc{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.docs[key]
	if !ok {
		return document.Doc{}, fault.New(fault.NotFound, "document %s does not exist", key)
	}
	return copyOf(d), nil
}

// GetMany returns copies of the documents at one moment.
func (s *Documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := cmp.Or(document.CheckKeys(keys), canceled(ctx, "get documents")); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	docs := make([]document.Doc, len(keys))
	for i, key := range keys {
		docs[i] = copyOf(s.docs[key])
		docs[i].Key = key
	}
	return docs, nil
}

// Create writes a new document.
func (s *Documents) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := cmp.Or(document.CheckWrite(key, value), canceled(ctx, "create document "+key)); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.docs[key]; ok {
		return "", fault.New(fault.Conflict, "document %s exists already", key)
	}
	at, _ := slices.BinarySearch(s.keys, key)
	s.keys = slices.Insert(s.keys, at, key)
	return s.put(key, value), nil
}

// Replace writes a document that is at the revision.
func (s *Documents) Replace(ctx context.Context, key string, value []byte,
	rev document.Revision) (document.Revision, error) {
	if err := cmp.Or(document.CheckWrite(key, value), canceled(ctx, "replace document "+key)); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.docs[key]; !ok || d.Revision != rev {
		return "", fault.New(fault.Conflict, "document %s is not at revision %q", key, rev)
	}
	return s.put(key, value), nil
}

// Delete removes a document that is at the revision.
func (s *Documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := cmp.Or(document.CheckKey(key), canceled(ctx, "delete document "+key)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.docs[key]
	if !ok {
		return fault.New(fault.NotFound, "document %s does not exist", key)
	}
	if d.Revision != rev {
		return fault.New(fault.Conflict, "document %s is not at revision %q", key, rev)
	}
	at, _ := slices.BinarySearch(s.keys, key)
	s.keys = slices.Delete(s.keys, at, at+1)
	delete(s.docs, key)
	s.hint(key)
	return nil
}

// List returns copies of a page of documents.
func (s *Documents) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if err := cmp.Or(document.CheckList(prefix, after, limit), canceled(ctx, "list documents "+prefix)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearch(s.keys, max(prefix, after))
	if found && after >= prefix {
		at++
	}
	var docs []document.Doc
	for _, key := range s.keys[at:] {
		if len(docs) == limit || !strings.HasPrefix(key, prefix) {
			break
		}
		docs = append(docs, copyOf(s.docs[key]))
	}
	return docs, nil
}

// Ping succeeds unless ctx has ended.
func (s *Documents) Ping(ctx context.Context) error { return canceled(ctx, "ping documents") }

// Watch returns a channel that receives a hint after every write under prefix. It is
// closed when ctx ends.
func (s *Documents) Watch(ctx context.Context, prefix string) <-chan struct{} {
	hints := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[hints] = prefix
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, hints)
		close(hints)
	})
	return hints
}

// put stores a copy of value with a new revision. The caller holds s.mu.
func (s *Documents) put(key string, value []byte) document.Revision {
	s.writes++
	rev := document.Revision(strconv.FormatUint(s.writes, 10))
	s.docs[key] = document.Doc{Key: key, Value: bytes.Clone(value), Revision: rev}
	s.hint(key)
	return rev
}

// hint wakes the watchers of the key. The caller holds s.mu.
func (s *Documents) hint(key string) {
	for hints, prefix := range s.watchers {
		if strings.HasPrefix(key, prefix) {
			wake(hints)
		}
	}
}

// copyOf returns d with a copy of its value. A nil value stands for a document that
// does not exist, so an empty one is not nil.
func copyOf(d document.Doc) document.Doc {
	if d.Revision != "" {
		d.Value = append([]byte{}, d.Value...)
	}
	return d
}
