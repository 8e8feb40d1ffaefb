package gcp

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"rollout/shared/blob"
	"rollout/shared/text"
)

// listPage is the limit of Cloud Storage of entries in one answer.
const listPage = 1000

// List lists current versions; see blob.Store. It leaves out names that are no keys of
// the port, such as the folders that the console creates.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	if err := blob.CheckList(prefix, limit); err != nil {
		return nil, err
	}
	if after >= prefix && !strings.HasPrefix(after, prefix) {
		return nil, nil // after sorts behind all keys with the prefix
	}
	query := &storage.Query{Prefix: b.prefix + prefix, Projection: storage.ProjectionNoACL}
	if err := query.SetAttrSelection([]string{"Name", "Size", "Generation", "Created"}); err != nil {
		return nil, translate(ctx, err, "list objects %q", prefix)
	}
	if from := listable(after); from > prefix {
		query.StartOffset = b.prefix + from
	}
	objects := b.bucket.Objects(ctx, query)
	objects.PageInfo().MaxSize = min(limit+1, listPage) // one more: the first may be after itself
	var found []blob.Info
	for len(found) < limit {
		attributes, err := objects.Next()
		if err == iterator.Done {
			break
		}
		if err != nil {
			return nil, b.missing(ctx, translate(ctx, err, "list objects %q", prefix))
		}
		key, inside := strings.CutPrefix(attributes.Name, b.prefix)
		if inside && key > after && blob.CheckKey(key) == nil {
			found = append(found, describe(key, attributes))
		}
	}
	return found, nil
}

// listable returns the longest beginning of after from which Cloud Storage takes a
// listing. The caller leaves out the keys between the two.
func listable(after string) string {
	for i, r := range after {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return after[:i]
		}
	}
	return text.Truncate(after, blob.MaxKey, "")
}
