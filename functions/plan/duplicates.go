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

// comparison finds the items of a few ranges whose hash an earlier item of the
// run has, and adds the ranges' new hashes to the run's lists.
type comparison struct {
	planner  *Planner
	id       identity.RunID
	of       record.HashKind
	from     int                         // the first of the ranges
	counts   []int                       // hashes of each
	lists    []record.Hashes             // of the ranges before them
	skip     func(shardtable.Place) bool // nil skips none
	onRepeat func(shardtable.Place)      // of each item that repeats one, maybe twice; nil if nobody is
}

// run returns the lists with the ranges' own, and the repeats that the ranges
// have. The error is errDense if they have too many for all the ranges at once.
func (c *comparison) run(ctx context.Context) ([]record.Hashes, *repeats, error) {
	found := newRepeats(c.from, len(c.counts))
	if !slices.ContainsFunc(c.counts, func(n int) bool { return n > 0 }) {
		return c.lists, found, nil
	}
	fresh := record.Hashes{From: c.from, To: c.from + len(c.counts)}
	var err error
	fresh.Count, err = c.planner.writeList(ctx, record.HashesKey(c.id, fresh, c.of), func(first func(shardtable.Entry) error) error {
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

// fold reads the ranges' hashes beside those of all ranges before them.
func (c *comparison) fold(ctx context.Context, first func(shardtable.Entry) error, repeat func(item, first shardtable.Place) error) error {
	var current []list
	for i, count := range c.counts {
		for s := 0; count > 0; s++ {
			n := min(count, shardtable.SegmentEntries)
			current = append(current, list{record.PlanHashesKey(c.id, c.from+i, s, c.of), uint64(n)})
			count -= n
		}
	}
	return c.planner.fold(ctx, current, c.named(c.lists), c.skip, first, repeat)
}

func (c *comparison) named(hs []record.Hashes) []list {
	out := make([]list, len(hs))
	for i, h := range hs {
		out[i] = list{record.HashesKey(c.id, h, c.of), h.Count}
	}
	return out
}

// write leaves a range's repeats in an object, if it has any.
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

// joinedAtOnce is how many lists of about one length are joined. It bounds how
// many lists a run has to that number for each level of length; a run of 3 TB
// has a few dozen.
const joinedAtOnce = 8

// level is how long a list is: one of the next level has up to as many times
// more entries.
func level(h record.Hashes) int { return bits.Len64(h.Count) / 3 }

// join joins the last lists as long as there are enough that are no longer
// than the last one, by level.
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
		joined.Count, err = c.planner.writeList(ctx, record.HashesKey(c.id, joined, c.of), func(first func(shardtable.Entry) error) error {
			return c.planner.fold(ctx, c.named(tail), nil, nil, first, nil)
		})
		if err != nil {
			return nil, err
		}
		lists = append(lists[:from], joined)
	}
}

// list names a list of hashes in the bucket.
type list struct {
	key   string
	count uint64
}

// writeList leaves the entries that fold finds to be first.
func (p *Planner) writeList(ctx context.Context, key string, fold func(first func(shardtable.Entry) error) error) (count uint64, err error) {
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

// fold is cuttable.FindRepeats over lists in the bucket.
func (p *Planner) fold(ctx context.Context, current, earlier []list, skip func(shardtable.Place) bool, first func(shardtable.Entry) error, repeat func(item, first shardtable.Place) error) (err error) {
	lists := slices.Concat(current, earlier)
	open := make([]io.ReadCloser, len(lists))
	defer func() {
		for _, r := range open {
			if r != nil {
				err = errors.Join(err, r.Close())
			}
		}
	}()
	readers := make([]*shardtable.HashReader, len(lists))
	var group errgroup.Group // whose end must not end what is read
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
	return shardtable.FindRepeats(readers[:len(current)], readers[len(current):], skip, first, repeat)
}
