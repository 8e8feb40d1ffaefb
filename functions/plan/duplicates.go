package plan

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// comparison finds the items of some consecutive ranges whose hash an earlier
// item of the run has: the repeats. It adds the ranges' new hashes to the run's
// lists.
type comparison struct {
	planner  *Planner
	id       identity.RunID
	of       record.HashKind
	from     int                         // the first of the ranges
	counts   []int                       // hashes of each range
	lists    []record.Hashes             // of all earlier ranges
	skip     func(shardtable.Place) bool // optional: items to leave out
	onRepeat func(shardtable.Place)      // optional: called with each repeat, possibly twice
}

// run returns the run's lists including those of the ranges, and the ranges'
// repeats. It returns errTooManyRepeats if fewer ranges must be compared at once.
func (c *comparison) run(ctx context.Context) ([]record.Hashes, *repeats, error) {
	found := newRepeats(c.from, len(c.counts))
	if !slices.ContainsFunc(c.counts, func(n int) bool { return n > 0 }) {
		return c.lists, found, nil
	}
	fresh := record.Hashes{From: c.from, To: c.from + len(c.counts)}
	var err error
	key := record.HashesKey(c.id, fresh, c.of)
	fresh.Count, err = c.planner.writeList(ctx, key, func(first func(shardtable.Entry) error) error {
		found = newRepeats(c.from, len(c.counts))
		return c.fold(ctx, first, func(item, of shardtable.Place) error {
			if c.onRepeat != nil {
				c.onRepeat(item)
			}
			return found.add(item, of)
		})
	})
	if err != nil {
		return nil, nil, err
	}
	found.sort()
	lists := c.lists
	if fresh.Count > 0 {
		lists, err = c.join(ctx, append(slices.Clone(lists), fresh))
	}
	return lists, found, err
}

// fold compares the ranges' hashes with those of all earlier ranges. It calls
// first with each new hash, and repeat with each repeat and its first item.
func (c *comparison) fold(ctx context.Context, first func(shardtable.Entry) error,
	repeat func(item, first shardtable.Place) error) error {
	var current []list
	for i, count := range c.counts {
		for s := 0; count > 0; s++ {
			n := min(count, shardtable.SegmentEntries)
			current = append(current, list{record.PlanHashesKey(c.id, c.from+i, s, c.of), uint64(n)})
			count -= n
		}
	}
	return c.planner.fold(ctx, folding{current, c.keys(c.lists), c.skip, first, repeat})
}

// keys returns the objects of the run's lists.
func (c *comparison) keys(hs []record.Hashes) []list {
	out := make([]list, len(hs))
	for i, h := range hs {
		out[i] = list{record.HashesKey(c.id, h, c.of), h.Count}
	}
	return out
}

// write writes a range's repeats into an object, if it has any.
func (c *comparison) write(ctx context.Context, rng int, found *repeats) error {
	if found.count(rng) == 0 {
		return nil
	}
	return c.planner.stream(ctx, record.RepeatsKey(c.id, rng, c.of), func(w io.Writer) error {
		out := shardtable.NewRepeatWriter(w)
		for part := found; ; {
			for r := range part.of(rng) {
				if err := out.Append(r); err != nil {
					return err
				}
			}
			if !part.more() {
				return out.Flush()
			}
			part = part.nextWindow()
			if err := c.fold(ctx, nil, part.add); err != nil {
				return err
			}
			part.sort()
		}
	})
}

// joinedAtOnce is how many lists of one level are joined. A run has fewer lists
// than that for each level: a few dozen for 3 TB.
const joinedAtOnce = 8

// level is the magnitude of a list's length, to the base 8.
func level(h record.Hashes) int { return bits.Len64(h.Count) / 3 }

// join joins the last lists while at least joinedAtOnce of them have at most the
// level of the last one.
func (c *comparison) join(ctx context.Context, lists []record.Hashes) ([]record.Hashes, error) {
	for {
		from := len(lists) - 1
		for from > 0 && level(lists[from-1]) <= level(lists[len(lists)-1]) {
			from--
		}
		tail := lists[from:]
		if len(tail) < joinedAtOnce {
			return lists, nil
		}
		joined := record.Hashes{From: tail[0].From, To: tail[len(tail)-1].To}
		var err error
		key := record.HashesKey(c.id, joined, c.of)
		joined.Count, err = c.planner.writeList(ctx, key, func(first func(shardtable.Entry) error) error {
			return c.planner.fold(ctx, folding{current: c.keys(tail), first: first})
		})
		if err != nil {
			return nil, err
		}
		lists = append(lists[:from], joined)
	}
}

// list is a hash list in the bucket.
type list struct {
	key   string
	count uint64
}

// writeList writes a hash list of the entries that fold passes to first.
func (p *Planner) writeList(ctx context.Context, key string,
	fold func(first func(shardtable.Entry) error) error) (count uint64, err error) {
	err = p.streamWhole(ctx, key, func(w io.Writer) error {
		out := shardtable.NewHashWriter(w)
		if err := fold(out.Append); err != nil {
			return err
		}
		count = out.Count()
		return out.Flush()
	})
	return count, err
}

// folding are the arguments of shardtable.FindRepeats, with lists in the bucket.
type folding struct {
	current, earlier []list
	skip             func(shardtable.Place) bool
	first            func(shardtable.Entry) error
	repeat           func(item, first shardtable.Place) error
}

// fold calls shardtable.FindRepeats over lists in the bucket.
func (p *Planner) fold(ctx context.Context, f folding) (err error) {
	lists := slices.Concat(f.current, f.earlier)
	open := make([]io.ReadCloser, len(lists))
	defer func() {
		for _, r := range open {
			if r != nil {
				err = errors.Join(err, r.Close())
			}
		}
	}()
	readers := make([]*shardtable.HashReader, len(lists))
	var group errgroup.Group // without a context: the readers are used after Wait
	group.SetLimit(atOnce)
	for i, l := range lists {
		group.Go(func() (err error) {
			if open[i], _, err = p.Blobs.Get(ctx, l.key, blob.GetOptions{}); err != nil {
				open[i] = nil
				return err
			}
			readers[i], err = shardtable.OpenHashes(open[i], l.count)
			return fault.Wrap(err, "read %s", l.key)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	n := len(f.current)
	return shardtable.FindRepeats(readers[:n], readers[n:], f.skip, f.first, f.repeat)
}
