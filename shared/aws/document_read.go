package aws

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/retry"
)

const (
	// batchGet is the most keys that one request takes.
	batchGet = 100
	// readers is how many requests of one GetMany or List are under way at
	// once.
	readers = 8
)

// GetMany reads documents in batches; see document.Store.
func (d *Documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := document.CheckKeys(keys); err != nil {
		return nil, err
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys))) // DynamoDB takes none twice
	batches := slices.Collect(slices.Chunk(distinct, batchGet))
	found := make([]map[string]document.Doc, len(batches))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, batch := range batches {
		group.Go(func() (err error) {
			found[i], err = d.getBatch(groupCtx, batch)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	docs := make([]document.Doc, len(keys))
	taken := map[string]bool{}
	for i, key := range keys {
		at, _ := slices.BinarySearch(distinct, key)
		doc, ok := found[at/batchGet][key]
		if !ok {
			doc = document.Doc{Key: key}
		} else if taken[key] {
			doc.Value = bytes.Clone(doc.Value) // results share no bytes
		}
		taken[key] = true
		docs[i] = doc
	}
	return docs, nil
}

// getBatch reads up to batchGet documents. DynamoDB leaves out what would make
// its answer too large or what it has no capacity for: that is asked for again,
// slower each time that nothing came.
func (d *Documents) getBatch(ctx context.Context, keys []string) (map[string]document.Doc, error) {
	items := make([]map[string]types.AttributeValue, len(keys))
	for i, key := range keys {
		items[i] = d.item(key)
	}
	found := map[string]document.Doc{}
	for len(items) > 0 {
		out, err := d.getSome(ctx, items)
		if err != nil {
			return nil, err
		}
		for _, item := range out.Responses[d.table] {
			doc, err := d.doc(item)
			if err != nil {
				return nil, err
			}
			found[doc.Key] = doc
		}
		items = out.UnprocessedKeys[d.table].Keys
	}
	return found, nil
}

// getSome asks for documents until some come, or none is left out.
func (d *Documents) getSome(ctx context.Context, items []map[string]types.AttributeValue) (out *dynamodb.BatchGetItemOutput, err error) {
	err = retry.Policy{}.Do(ctx, func(int) error {
		out, err = d.dynamo.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			d.table: {Keys: items, ConsistentRead: awssdk.Bool(true)},
		}})
		if err != nil {
			return permanent(d.translate(ctx, err, "get %d documents", len(items)))
		}
		if left := len(out.UnprocessedKeys[d.table].Keys); left > 0 && len(out.Responses[d.table]) == 0 {
			return fault.New(fault.Throttled, "get %d documents: DynamoDB left %d of them out", len(items), left)
		}
		return nil
	})
	return out, unpermanent(err)
}

// List merges the partitions that may have keys with the prefix; see
// document.Store.
func (d *Documents) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if err := document.CheckList(prefix, after, limit); err != nil {
		return nil, err
	}
	from, to := document.KeyRange(prefix)
	if after >= from {
		from = after + "!" // the least key after it: keys have no lesser character
	}
	if from >= to {
		return nil, nil
	}
	names := d.with(prefix)
	pages := make([]page, len(names))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, name := range names {
		group.Go(func() (err error) {
			pages[i], err = d.query(groupCtx, name, from, to, limit)
			return fault.Wrap(err, "list documents %s*", prefix)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return merge(pages, limit), nil
}

// page is what a query gave of one partition: all that there is up to the last
// document, and beyond it if it is whole.
type page struct {
	docs  []document.Doc
	whole bool
}

// merge returns the first documents of all pages, as far as they are known to
// be the first. Each page that is not whole has a document, so there is one.
func merge(pages []page, limit int) []document.Doc {
	var all []document.Doc
	known, bounded := "", false
	for _, p := range pages {
		all = append(all, p.docs...)
		if !p.whole {
			if last := p.docs[len(p.docs)-1].Key; !bounded || last < known {
				known, bounded = last, true
			}
		}
	}
	slices.SortFunc(all, func(a, b document.Doc) int { return cmp.Compare(a.Key, b.Key) })
	if bounded {
		end, _ := slices.BinarySearchFunc(all, known, func(d document.Doc, key string) int { return cmp.Compare(d.Key, key) })
		all = all[:end+1]
	}
	return all[:min(limit, len(all))]
}

// query reads one page of a partition: the keys from, inclusive, to to, which
// is no key.
func (d *Documents) query(ctx context.Context, partition, from, to string, limit int) (page, error) {
	in := &dynamodb.QueryInput{
		TableName: &d.table, ConsistentRead: awssdk.Bool(true), Limit: awssdk.Int32(int32(limit)),
		KeyConditionExpression: awssdk.String(partitionAttribute + " = :p AND " + keyAttribute + " BETWEEN :from AND :to"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":p": stringAttribute(partition), ":from": stringAttribute(d.prefix + from), ":to": stringAttribute(d.prefix + to),
		},
	}
	var p page
	for {
		out, err := d.dynamo.Query(ctx, in)
		if err != nil {
			return page{}, d.translate(ctx, err, "query partition %s", partition)
		}
		for _, item := range out.Items {
			doc, err := d.doc(item)
			if err != nil {
				return page{}, err
			}
			p.docs = append(p.docs, doc)
		}
		p.whole = len(out.LastEvaluatedKey) == 0
		if p.whole || len(p.docs) > 0 {
			return p, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}
