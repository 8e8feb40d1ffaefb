package shardtable

import "rollout/shared/fault"

// FindRepeats compares the items of the current hash lists with each other and with
// all earlier items of the run. The earlier lists must hold each of their hashes
// once, with the first item that has it. Items for which skip returns true are
// ignored; nil ignores none.
//
// FindRepeats calls first with every entry whose hash is new, in the order of a hash
// list, and repeat with every other item and the first item with its hash, in no
// particular order. Both may be nil, and an error of theirs ends the search. It
// needs the memory of one page for each list.
func FindRepeats(current, earlier []*HashReader, skip func(Place) bool,
	first func(Entry) error, repeat func(item, first Place) error) error {
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
				return fault.Wrap(err, "read a list of the current ranges")
			}
		}
	}
	return nil
}

// heap is a binary heap of the lists that have a next entry. The entry of list i is not
// before that of list (i-1)/2, so that list 0 has the next entry of all.
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

// next removes the next entry.
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

// sink restores the order of the heap below list i.
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

// find returns the first place with the hash of an entry, if one of the lists has it.
func find(lists []*HashReader, hash Entry) (p Place, found bool, err error) {
	for i, l := range lists {
		if err := l.seek(hash); err != nil {
			return p, false, fault.Wrap(err, "search earlier list %d", i)
		}
		if l.ok && l.at.compareHash(hash) == 0 {
			return l.at.Place, true, nil
		}
	}
	return p, false, nil
}
