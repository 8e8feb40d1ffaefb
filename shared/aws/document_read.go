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
	// batchGet is DynamoDB's limit of keys in one BatchGetItem request.
	batchGet = 100
	// readers is the most concurrent requests of one GetMany or List.
	readers = 8
)

// GetMany reads documents in batches; see document.Store.
func (d *Documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := document.CheckKeys(keys); err != nil {
		return nil, err
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys))) // DynamoDB refuses a repeated key
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
	returned := map[string]bool{}
	for i, key := range keys {
		at, _ := slices.BinarySearch(distinct, key)
		doc, ok := found[at/batchGet][key]
		if !ok {
			doc = document.Doc{Key: key}
		} else if returned[key] {
			doc.Value = bytes.Clone(doc.Value) // results do not share memory
		}
		returned[key] = true
		docs[i] = doc
	}
	return docs, nil
}

// getBatch reads up to batchGet documents. DynamoDB leaves out documents that
// would make its response too large or exceed its capacity. getBatch requests
// those again, and backs off after a response without documents.
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

// getSome requests documents until a response has at least one, or leaves none
// out.
func (d *Documents) getSome(ctx context.Context, items []map[string]types.AttributeValue) (
	out *dynamodb.BatchGetItemOutput, err error,
) {
	in := &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
		d.table: {Keys: items, ConsistentRead: awssdk.Bool(true)},
	}}
	err = retry.Policy{}.Do(ctx, func(int) error {
		out, err = d.dynamo.BatchGetItem(ctx, in)
		if err != nil {
			return permanent(d.translate(ctx, err, "get %d documents", len(items)))
		}
		if left := len(out.UnprocessedKeys[d.table].Keys); left > 0 && len(out.Responses[d.table]) == 0 {
			return fault.New(fault.Throttled, "get %d documents: DynamoDB left out %d of them", len(items), left)
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
		from = after + "!" // the next key: "!" is the lowest character of keys
	}
	if from >= to {
		return nil, nil
	}
	names := d.partitionsFor(prefix)
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

// page is the result of a query of one partition: all matching documents up to
// the last one that it has, and all of the partition if it is complete.
type page struct {
	docs     []document.Doc
	complete bool
}

// merge returns the first documents of all pages in key order. It stops at the
// last key of the shortest incomplete page, because later documents of that
// partition are unknown. An incomplete page has at least one document, so the
// result is not empty unless all pages are.
func merge(pages []page, limit int) []document.Doc {
	var all []document.Doc
	known, bounded := "", false
	for _, p := range pages {
		all = append(all, p.docs...)
		if !p.complete {
			if last := p.docs[len(p.docs)-1].Key; !bounded || last < known {
				known, bounded = last, true
			}
		}
	}
	slices.SortFunc(all, func(a, b document.Doc) int { return cmp.Compare(a.Key, b.Key) })
	if bounded {
		byKey := func(d document.Doc, key string) int { return cmp.Compare(d.Key, key) }
		end, _ := slices.BinarySearchFunc(all, known, byKey)
		all = all[:end+1]
	}
	return all[:min(limit, len(all))]
}

// query reads one page of a partition: at most limit documents whose keys are
// between from and to. from is inclusive; to is not the key of any document.
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
		p.complete = len(out.LastEvaluatedKey) == 0
		if p.complete || len(p.docs) > 0 {
			return p, nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}
