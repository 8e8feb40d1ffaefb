package reclaim

import (
	"rollout/shared/document"
	"rollout/shared/record"
)

// decoded decodes documents, and keeps the values of the last scan: most documents have
// not changed since. Callers must not change what a value points to.
type decoded[T any] struct{ last, next map[string]decodedValue[T] }

type decodedValue[T any] struct {
	revision document.Revision
	value    T
}

// begin begins a scan. Values that the scan before did not ask for are forgotten.
func (c *decoded[T]) begin() { c.last, c.next = c.next, map[string]decodedValue[T]{} }

// of returns the value of a document that exists.
func (c *decoded[T]) of(d document.Doc) (T, error) {
	v, ok := c.last[d.Key]
	if !ok || v.revision != d.Revision {
		v = decodedValue[T]{revision: d.Revision}
		if err := record.Decode(d.Value, &v.value, "document "+d.Key); err != nil {
			return v.value, err
		}
	}
	c.next[d.Key] = v
	return v.value, nil
}
