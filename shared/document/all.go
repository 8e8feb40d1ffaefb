package document

import (
	"context"
	"iter"
)

// All yields every document whose key starts with prefix, in byte order of
// keys, a page at a time. It stops at the first error, which it yields with an
// empty Doc. Documents that are written meanwhile may or may not appear.
func All(ctx context.Context, s Store, prefix string) iter.Seq2[Doc, error] {
	return func(yield func(Doc, error) bool) {
		after := ""
		for {
			page, err := s.List(ctx, prefix, after, MaxPage)
			if err != nil {
				yield(Doc{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
			}
			after = page[len(page)-1].Key
		}
	}
}
