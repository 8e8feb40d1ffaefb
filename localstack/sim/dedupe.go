package sim

import (
	"fmt"

	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// original is an item whose request is sent for all items with the same request.
type original struct {
	item  uint64
	row   []byte      // nil if the run ended before it was answered
	class fault.Class // of an error row
}

// originals are the originals of a run that sends identical requests once.
type originals map[identity.ContentID]*original

// originalOf returns the item whose request is sent for the line. It is nil for a
// line without a request, and in runs that send every request.
func (s *scenario) originalOf(all originals, l line, item uint64) *original {
	if !s.cfg.Dedupe.Enabled || l.class == fault.DuplicateID || l.class == fault.InvalidLine {
		return nil
	}
	it, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		return nil
	}
	f, ok := all[it.RequestDigest()]
	if !ok {
		f = &original{item: item}
		all[it.RequestDigest()] = f
	}
	return f
}

// record keeps the row of an original.
func (o *original) record(item uint64, row []byte, class fault.Class) {
	if o != nil && o.item == item {
		o.row, o.class = row, class
	}
}

// expectCopy is the row of a copy. Both results are nil if the original has no
// row.
func (s *scenario) expectCopy(l line, place dialect.Place, f *original) (out, errRow []byte) {
	if f.row == nil {
		return nil, nil
	}
	it, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	model, _ := s.model(l)
	id := it.RowID(it.ItemID(model, place.Item))
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
