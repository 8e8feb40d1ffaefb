package shardtable

import "rollout/shared/fault"

// FindRepeats tells which items of the current lists are the first of the run to have
// their hash, and which repeat one. Earlier are lists of all items before
// them, each with first items only and none twice. Items that skip tells of
// are passed over; nil skips none.
//
// First gets the entries that are first, in the order of a hash list; repeat
// gets an item and the first one with its hash, in no useful order. Either may
// be nil; an error of theirs ends the fold. Memory is a page a list.
func FindRepeats(current, earlier []*HashReader, skip func(Place) bool, first func(Entry) error, repeat func(item, first Place) error) error {
	h := newHeap(current)
	for len(h) > 0 {
		hash := h[0].at
		head, found, err := find(earlier, hash)
		if err != nil {
			return err
		}
		for len(h) > 0 && h[0].at.compareHash(hash) == 0 {
			e := h[0].at
			switch {
			case skip != nil && skip(e.Place):
			case !found:
				head, found = e.Place, true
				if first != nil {
					err = first(e)
				}
			case repeat != nil:
				err = repeat(e.Place, head)
			}
			if err != nil {
				return err
			}
			if h, err = h.next(); err != nil {
				return fault.Wrap(err, "a list of the ranges compared")
			}
		}
	}
	return nil
}

// heap is lists that have an entry, of which no one's comes before that of the
// list at (i-1)/2: the first one's is the next of all.
type heap []*HashReader

func newHeap(lists []*HashReader) (h heap) {
	for _, l := range lists {
		if l.ok {
			h = append(h, l)
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
	return h
}

// next takes the next entry.
func (h heap) next() (heap, error) {
	if err := h[0].next(); err != nil {
		return h, err
	}
	if !h[0].ok {
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
	}
	h.sink(0)
	return h, nil
}

// sink moves list i to where it belongs among those below it.
func (h heap) sink(i int) {
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if right := least + 1; right < len(h) && h[right].at.compare(h[least].at) < 0 {
			least = right
		}
		if h[i].at.compare(h[least].at) <= 0 {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// find looks for the hash in the lists.
func find(lists []*HashReader, hash Entry) (p Place, found bool, err error) {
	for i, l := range lists {
		if err := l.seek(hash); err != nil {
			return p, false, fault.Wrap(err, "earlier list %d", i)
		}
		if l.ok && l.at.compareHash(hash) == 0 {
			return l.at.Place, true, nil
		}
	}
	return p, false, nil
}
