package cuttable

import "rollout/shared/fault"

// Fold tells which items of the current lists are the first of the run to have
// their hash, and which repeat one. Earlier are lists of all items before
// them, each with first items only and none twice. Items that skip tells of
// are passed over; nil skips none.
//
// First gets the entries that are first, in the order of a hash list; repeat
// gets an item and the first one with its hash, in no useful order. Either may
// be nil. Memory is a page a list.
func Fold(current, earlier []*HashReader, skip func(item uint32) bool, first func(Entry) error, repeat func(Repeat)) error {
	for {
		from := lowest(current)
		if from == nil {
			return nil
		}
		hash := from.at
		head, err := find(earlier, hash)
		if err != nil {
			return err
		}
		for from != nil && from.at.compareHash(hash) == 0 {
			e := from.at
			switch {
			case skip != nil && skip(e.Item):
			case head == nil:
				head = &e
				if first != nil {
					if err := first(e); err != nil {
						return err
					}
				}
			case repeat != nil:
				repeat(Repeat{Item: e.Item, First: head.Place})
			}
			if err := from.next(); err != nil {
				return fault.Wrap(err, "a list of the range")
			}
			from = lowest(current)
		}
	}
}

// lowest is the list whose next entry comes first; nil if none has any.
func lowest(lists []*HashReader) (from *HashReader) {
	for _, l := range lists {
		if l.ok && (from == nil || l.at.compare(from.at) < 0) {
			from = l
		}
	}
	return from
}

// find looks for the hash in the lists; nil if none has it.
func find(lists []*HashReader, hash Entry) (*Entry, error) {
	for i, l := range lists {
		if err := l.seek(hash); err != nil {
			return nil, fault.Wrap(err, "earlier list %d", i)
		}
		if l.ok && l.at.compareHash(hash) == 0 {
			e := l.at
			return &e, nil
		}
	}
	return nil, nil
}
