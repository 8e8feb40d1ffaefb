package plan

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/cuttable"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// comparison finds the items of a range whose hash an earlier item of the run
// has, and adds the range's new hashes to the run's lists.
type comparison struct {
	planner *Planner
	id      identity.RunID
	of      record.Hashed
	rng     int
	count   int                    // hashes of the range
	lists   []record.Hashes        // of the ranges before it
	skip    func(item uint32) bool // nil skips none
	seen    items                  // gets the items that repeat one, if not nil
}

// run returns the lists with the range's own, and how many repeats the range
// has; they are left in an object.
func (c *comparison) run(ctx context.Context) (lists []record.Hashes, repeats int, err error) {
	if c.count == 0 {
		return c.lists, 0, nil
	}
	fresh := record.Hashes{From: c.rng, To: c.rng + 1}
	var found window
	fresh.Count, err = c.planner.writeList(ctx, record.HashesKey(c.id, fresh, c.of), func(first func(cuttable.Entry) error) error {
		found = window{hi: windowItems}
		return c.fold(ctx, first, func(r cuttable.Repeat) {
			found.add(r)
			if c.seen != nil {
				c.seen.add(r.Item)
			}
		})
	})
	if err != nil {
		return nil, 0, err
	}
	if found.total > 0 {
		key := record.RepeatsKey(c.id, c.rng, c.of)
		if err := c.planner.stream(ctx, key, func(w io.Writer) error { return c.repeats(ctx, w, found) }); err != nil {
			return nil, 0, err
		}
	}
	lists = c.lists
	if fresh.Count > 0 {
		lists, err = c.join(ctx, append(slices.Clone(lists), fresh))
	}
	return lists, found.total, err
}

// fold reads the range's hashes beside those of all ranges before it.
func (c *comparison) fold(ctx context.Context, first func(cuttable.Entry) error, repeat func(cuttable.Repeat)) error {
	var current []list
	for left, s := c.count, 0; left > 0; left, s = left-cuttable.SegmentEntries, s+1 {
		current = append(current, list{record.SegmentKey(c.id, c.rng, s, c.of), uint64(min(left, cuttable.SegmentEntries))})
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

// windowItems is how many items' repeats are in memory at once. A range of
// more items is compared again for each further window that has a repeat: it
// is full of tiny lines, and must not take memory for that.
const windowItems = 1 << 19

// window gathers the repeats of the items [lo, hi) of a range.
type window struct {
	lo, hi  uint32
	repeats []cuttable.Repeat
	total   int    // of all items
	last    uint32 // the last item that is a repeat
}

func (w *window) add(r cuttable.Repeat) {
	w.total++
	w.last = max(w.last, r.Item)
	if r.Item >= w.lo && r.Item < w.hi {
		w.repeats = append(w.repeats, r)
	}
}

// repeats writes the range's repeats, of which the first window is known.
func (c *comparison) repeats(ctx context.Context, to io.Writer, w window) error {
	out := cuttable.NewRepeatWriter(to)
	for {
		slices.SortFunc(w.repeats, func(a, b cuttable.Repeat) int { return cmp.Compare(a.Item, b.Item) })
		for _, r := range w.repeats {
			if err := out.Append(r); err != nil {
				return err
			}
		}
		if w.last < w.hi {
			return out.Flush()
		}
		w = window{lo: w.hi, hi: w.hi + windowItems, repeats: w.repeats[:0]}
		if err := c.fold(ctx, nil, w.add); err != nil {
			return err
		}
	}
}

// joinedAtOnce is how many lists of one level are joined. It bounds how many
// lists a run has to that number for each level; a run of 3 TB has six.
const joinedAtOnce = 8

// join joins the last lists if there are enough of one level.
func (c *comparison) join(ctx context.Context, lists []record.Hashes) ([]record.Hashes, error) {
	for len(lists) >= joinedAtOnce {
		rest, tail := lists[:len(lists)-joinedAtOnce], lists[len(lists)-joinedAtOnce:]
		last := tail[joinedAtOnce-1]
		if tail[0].Level != last.Level {
			break
		}
		joined := record.Hashes{From: tail[0].From, To: last.To, Level: last.Level + 1}
		var err error
		joined.Count, err = c.planner.writeList(ctx, record.HashesKey(c.id, joined, c.of), func(first func(cuttable.Entry) error) error {
			return c.planner.fold(ctx, c.named(tail), nil, nil, first, nil)
		})
		if err != nil {
			return nil, err
		}
		lists = append(rest, joined)
	}
	return lists, nil
}

// list names a list of hashes in the bucket.
type list struct {
	key   string
	count uint64
}

// writeList leaves the entries that fold finds to be first.
func (p *Planner) writeList(ctx context.Context, key string, fold func(first func(cuttable.Entry) error) error) (count uint64, err error) {
	err = p.stream(ctx, key, func(w io.Writer) error {
		out := cuttable.NewHashWriter(w)
		if err := fold(out.Append); err != nil {
			return err
		}
		count = out.Count()
		return out.Flush()
	})
	return count, err
}

// fold is cuttable.Fold over lists in the bucket.
func (p *Planner) fold(ctx context.Context, current, earlier []list, skip func(uint32) bool, first func(cuttable.Entry) error, repeat func(cuttable.Repeat)) (err error) {
	var open []io.Closer
	defer func() {
		for _, c := range open {
			err = errors.Join(err, c.Close())
		}
	}()
	readers := func(ls []list) ([]*cuttable.HashReader, error) {
		out := make([]*cuttable.HashReader, len(ls))
		for i, l := range ls {
			r, _, err := p.Blobs.Get(ctx, l.key, blob.GetOptions{})
			if err != nil {
				return nil, err
			}
			open = append(open, r)
			if out[i], err = cuttable.OpenHashes(r, l.count); err != nil {
				return nil, fault.Wrap(err, "read %s", l.key)
			}
		}
		return out, nil
	}
	c, err := readers(current)
	if err != nil {
		return err
	}
	e, err := readers(earlier)
	if err != nil {
		return err
	}
	return cuttable.Fold(c, e, skip, first, repeat)
}
