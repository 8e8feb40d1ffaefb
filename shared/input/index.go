// Package input reads a run's planned input: the index of its ranges, the shard
// tables, and the lines of a shard.
//
// An Index finds the shard of a number, an item, a line or an id, and loads its
// lines from the pinned version of the input. It verifies that they are the
// planned bytes. The objects that it reads are immutable, so that it caches them
// without checking again. It never lists or writes objects, and reads only the
// bytes of the shard that it was asked for.
package input

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Bounds of the caches: entries of the index, pages of shard tables, indexes of
// repeats.
const (
	maxEntries       = 512
	maxPages         = 64
	pageRows         = 256
	maxRepeatIndexes = 64
)

// Index finds and loads the planned shards of all runs of an installation. It is
// safe for concurrent use.
type Index struct {
	*Inputs
	docs document.Store

	mu      sync.Mutex
	plans   map[identity.RunID]record.Plan // as last read
	entries map[rangeOf]record.IndexEntry
	pages   map[pageOf][]shardtable.Row
	repeats map[repeatsOf]shardtable.RepeatIndex
	kept    map[keptPage][]shardtable.Inherited // of child runs
}

type rangeOf struct {
	run identity.RunID
	rng int
}

type pageOf struct {
	rangeOf
	page int
}

// NewIndex returns an index over the ports.
func NewIndex(blobs blob.Store, docs document.Store) *Index {
	return &Index{Inputs: NewInputs(blobs), docs: docs, plans: map[identity.RunID]record.Plan{},
		entries: map[rangeOf]record.IndexEntry{}, pages: map[pageOf][]shardtable.Row{},
		repeats: map[repeatsOf]shardtable.RepeatIndex{}, kept: map[keptPage][]shardtable.Inherited{}}
}

// Plan returns the run's plan with at least the given numbers of merged shards and
// ranges. It returns NotFound if planning has not come so far.
func (x *Index) Plan(ctx context.Context, run identity.RunID, shards, ranges int) (record.Plan, error) {
	x.mu.Lock()
	p, ok := x.plans[run]
	x.mu.Unlock()
	if ok && p.Shards >= shards && p.Merged >= ranges {
		return p, nil
	}
	p = record.Plan{} // callers share the slices of the cached plan
	_, found, err := host.Load(ctx, x.docs, record.PlanKey(run), &p)
	if err != nil {
		return p, err
	}
	if !found || p.Shards < shards || p.Merged < ranges {
		return p, fault.New(fault.NotFound, "run %s is planned up to shard %d, range %d", run, p.Shards, p.Merged)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.plans, run, p, maxEntries)
	return p, nil
}

// AppendedKeys returns the keys of the objects that the plan of the run, of which that many shards
// are merged, has behind the run's inputs.
func (x *Index) AppendedKeys(ctx context.Context, m record.Manifest, shards int) (keys []string, err error) {
	if shards == 0 { // there may be no plan
		return nil, nil
	}
	p, err := x.Plan(ctx, m.Run, shards, 0)
	for i := p.Inputs(); i < p.Sources() && err == nil; i++ {
		var src record.Ranges
		src, err = x.Source(ctx, m.Run, p, i)
		keys = append(keys, src.Key)
	}
	return keys, err
}

// Entry returns the index entry of a merged range.
func (x *Index) Entry(ctx context.Context, run identity.RunID, rng int) (record.IndexEntry, error) {
	k := rangeOf{run, rng}
	x.mu.Lock()
	e, ok := x.entries[k]
	x.mu.Unlock()
	if ok {
		return e, nil
	}
	owner, err := x.rangeOwner(ctx, k)
	if err != nil {
		return e, err
	}
	b, err := ReadObject(ctx, x.blobs, record.IndexKey(owner, rng), maxSmall)
	if err != nil {
		return e, err
	}
	if err := record.Decode(b, &e, record.IndexKey(owner, rng)); err != nil {
		return e, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.entries, k, e, maxEntries)
	return e, nil
}

// maxSmall bounds the small objects that are read whole.
const maxSmall = 1 << 20

// FindShard returns the range of a planned shard, and its row in the range's shard
// table. It returns NotFound if the shard is not planned yet.
func (x *Index) FindShard(ctx context.Context, run identity.RunID, shard int) (record.IndexEntry, int, error) {
	p, err := x.Plan(ctx, run, shard+1, 0)
	if err != nil {
		return record.IndexEntry{}, 0, err
	}
	lo, hi := 0, p.Merged
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		e, err := x.Entry(ctx, run, mid)
		if err != nil {
			return e, 0, err
		}
		switch {
		case shard < e.FirstShard:
			hi = mid
		case shard >= e.FirstShard+e.Shards:
			lo = mid + 1
		default:
			return e, shard - e.FirstShard, nil
		}
	}
	return record.IndexEntry{}, 0, fault.New(fault.Corrupt, "the index of run %s has no shard %d", run, shard)
}

// Rows returns n rows of a range's shard table, beginning with row from.
func (x *Index) Rows(ctx context.Context, run identity.RunID, e record.IndexEntry,
	from, n int) ([]shardtable.Row, error) {
	if from < 0 || from+n > e.Shards {
		return nil, fault.New(fault.Invalid, "rows %d to %d of a shard table of %d rows", from, from+n, e.Shards)
	}
	out := make([]shardtable.Row, 0, n)
	for n > 0 {
		rows, err := x.page(ctx, run, e, from/pageRows)
		if err != nil {
			return nil, err
		}
		rows = rows[from%pageRows:]
		rows = rows[:min(n, len(rows))]
		out = append(out, rows...)
		from += len(rows)
		n -= len(rows)
	}
	return out, nil
}

// RoleOf returns the role of a planned shard. A run of one role needs no read.
func (x *Index) RoleOf(ctx context.Context, m record.Manifest, shard int) (uint32, error) {
	if len(m.Roles) == 0 {
		return 0, nil
	}
	e, row, err := x.FindShard(ctx, m.Run, shard)
	if err != nil {
		return 0, err
	}
	rows, err := x.Rows(ctx, m.Run, e, row, 1)
	if err != nil {
		return 0, err
	}
	return rows[0].Role, nil
}

// page returns a page of a range's shard table.
func (x *Index) page(ctx context.Context, run identity.RunID, e record.IndexEntry, page int) ([]shardtable.Row, error) {
	k := pageOf{rangeOf{run, e.Range}, page}
	x.mu.Lock()
	rows, ok := x.pages[k]
	x.mu.Unlock()
	if ok {
		return rows, nil
	}
	want := min(pageRows, e.Shards-page*pageRows)
	owner, err := x.rangeOwner(ctx, k.rangeOf)
	if err != nil {
		return nil, err
	}
	key := record.ShardTableKey(owner, e.Range)
	r, _, err := x.blobs.Get(ctx, key, blob.GetOptions{
		Offset: shardtable.RowOffset(int64(page) * pageRows),
		Length: int64(want) * shardtable.RowSize,
	})
	if err != nil {
		return nil, fault.Wrap(err, "read shard table %s", key)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, int64(want)*shardtable.RowSize))
	if err != nil {
		return nil, fault.Wrap(err, "read shard table %s", key)
	}
	rows, err = shardtable.Parse(b)
	if err == nil && len(rows) != want {
		err = fault.New(fault.Corrupt, "%d rows of %d", len(rows), want)
	}
	if err != nil {
		return nil, fault.Wrap(err, "read shard table %s", key)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.pages, k, rows, maxPages)
	return rows, nil
}

// put adds a value to a cache of at most limit values. It removes an arbitrary one
// if the cache is full.
func put[K comparable, V any](m map[K]V, k K, v V, limit int) {
	if _, ok := m[k]; !ok && len(m) >= limit {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[k] = v
}

// ReadObject returns the bytes of a small object. An object of more than limit bytes
// is Corrupt, and what is there but no file, such as a folder, is Invalid.
func ReadObject(ctx context.Context, blobs blob.Store, key string, limit int64) ([]byte, error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{})
	if errors.Is(err, blob.ErrNotFile) {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "read " + key, Err: blob.ErrNotFile,
			Remedy: "put a file there, or remove it"}
	}
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	if int64(len(b)) > limit {
		return nil, fault.New(fault.Corrupt, "%s is longer than %d bytes", key, limit)
	}
	return b, nil
}

// ReadPart returns a part of an object. An object that ends within the part is
// Corrupt.
func ReadPart(ctx context.Context, blobs blob.Store, key string, offset, length int64) ([]byte, error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{Offset: offset, Length: length})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	defer r.Close()
	b := make([]byte, length)
	_, err = io.ReadFull(r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF { // not wrapped: then a connection broke
		return nil, fault.WithKind(fault.Corrupt, err, "%s is truncated", key)
	}
	return b, fault.Wrap(err, "read %s", key)
}

// ReadJSON reads a small JSON object into v.
func ReadJSON(ctx context.Context, blobs blob.Store, key string, v any) error {
	b, err := ReadObject(ctx, blobs, key, maxSmall)
	if err != nil {
		return err
	}
	return fault.WithKind(fault.Corrupt, json.Unmarshal(b, v), "decode %s", key)
}
