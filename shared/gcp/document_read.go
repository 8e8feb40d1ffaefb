package gcp

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"rollout/shared/document"
	"rollout/shared/fault"
)

const (
	// readers is the most concurrent queries of one List.
	readers = 8
	// pageBytes bounds the values of a query's page, with the last one beyond it.
	pageBytes = 2 << 20
)

// Get reads a document; see document.Store.
func (d *Documents) Get(ctx context.Context, key string) (document.Doc, error) {
	docs, err := d.GetMany(ctx, []string{key})
	switch {
	case err != nil:
		return document.Doc{}, err
	case docs[0].Revision == "":
		return document.Doc{}, fault.New(fault.NotFound, "no document %s", key)
	}
	return docs[0], nil
}

// GetMany reads documents with one request; see document.Store.
func (d *Documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := document.CheckKeys(keys); err != nil || len(keys) == 0 {
		return nil, err
	}
	found, err := d.getAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	docs, returned := make([]document.Doc, len(keys)), map[string]bool{}
	for i, key := range keys {
		docs[i] = document.Doc{Key: key}
		if found[key] == nil {
			continue
		}
		if docs[i], err = d.document(found[key]); err != nil {
			return nil, err
		}
		if returned[key] {
			docs[i].Value = bytes.Clone(docs[i].Value) // results do not share memory
		}
		returned[key] = true
	}
	return docs, nil
}

// List merges the ranges of names that may have keys with the prefix, one query for
// each; see document.Store.
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
	begins := d.names.ranges(prefix)
	pages := make([]page, len(begins))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, begin := range begins {
		group.Go(func() (err error) {
			pages[i], err = d.query(groupCtx, begin+escape.Replace(from), begin+escape.Replace(to), limit)
			return fault.Wrap(err, "list documents %s*", prefix)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return merge(pages, limit), nil
}

// page is the result of a query of one range of names: its first documents, and
// all that the query is for if it is complete.
type page struct {
	docs     []document.Doc
	complete bool
}

// merge returns the first documents of all pages in key order. It stops at the
// last key of the shortest incomplete page, because later documents of that range
// are unknown. An incomplete page has at least one document, so the result is not
// empty unless all pages are.
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

// rangeOfNames returns the query of query.
func (d *Documents) rangeOfNames(from, to string, limit int) *pb.StructuredQuery {
	edge := func(name string) *pb.Cursor {
		path := d.parent() + "/" + d.collection + "/" + name
		return &pb.Cursor{Before: true,
			Values: []*pb.Value{{ValueType: &pb.Value_ReferenceValue{ReferenceValue: path}}}}
	}
	return &pb.StructuredQuery{
		From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: d.collection}},
		OrderBy: []*pb.StructuredQuery_Order{{
			Field:     &pb.StructuredQuery_FieldReference{FieldPath: "__name__"},
			Direction: pb.StructuredQuery_ASCENDING,
		}},
		StartAt: edge(from), EndAt: edge(to), Limit: wrapperspb.Int32(int32(limit)),
	}
}

// document converts a document of Firestore. The result has its memory.
func (d *Documents) document(doc *pb.Document) (document.Doc, error) {
	key, err := d.names.key(doc.Name[strings.LastIndexByte(doc.Name, '/')+1:])
	if err != nil {
		return document.Doc{}, err
	}
	value, ok := doc.Fields[valueField].GetValueType().(*pb.Value_BytesValue)
	if !ok {
		return document.Doc{}, fault.New(fault.Corrupt, "document %s has no bytes in its field %q", key, valueField)
	}
	if value.BytesValue == nil {
		value.BytesValue = []byte{}
	}
	return document.Doc{Key: key, Value: value.BytesValue, Revision: revisionOf(doc.UpdateTime.AsTime())}, nil
}
