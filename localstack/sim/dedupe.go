package sim

import (
	"fmt"

	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// first is an item that is asked for all that ask the same, and what became of
// it: row is nil if its run ended first.
type first struct {
	item  uint64
	row   []byte
	class fault.Class
}

// firsts are the items that are asked, in a run that asks identical requests
// once.
type firsts map[identity.ContentID]*first

// firstOf returns the item that is asked for the line's; nil for a line that
// is never asked, or whose run asks every line.
func (s *scenario) firstOf(all firsts, l line, item uint64) *first {
	if !s.cfg.Dedupe.Enabled || l.class == fault.DuplicateID || l.class == fault.InvalidLine {
		return nil
	}
	it, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		return nil
	}
	f, ok := all[it.RequestDigest()]
	if !ok {
		f = &first{item: item}
		all[it.RequestDigest()] = f
	}
	return f
}

// answered notes the row of an item that is asked.
func (f *first) answered(item uint64, row []byte, class fault.Class) {
	if f != nil && f.item == item {
		f.row, f.class = row, class
	}
}

// expectCopy is the row of an item that asks what first asks; none if nobody
// knows an answer.
func (s *scenario) expectCopy(l line, place dialect.Place, f *first) (out, errRow []byte) {
	if f.row == nil {
		return nil, nil
	}
	it, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	id := it.RowID(it.ItemID(s.model(), place.Item))
	if f.class != "" {
		message := fmt.Sprintf("item %d asks the same, was asked for both, and failed", f.item)
		return nil, dialect.AppendError(nil, dialect.Plain, it.Failure(id, place, f.class, message))
	}
	out, err = dialect.AppendCopy(nil, it, id, f.row)
	if err != nil {
		s.audit.breakf("item %d has a row that can't be copied: %v", f.item, err)
	}
	return out, nil
}
