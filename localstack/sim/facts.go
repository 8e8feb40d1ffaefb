package sim

import (
	"bytes"
	"context"

	"github.com/parquet-go/parquet-go"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// drawFacts draws whether the run has facts, and how large their parts are. Rollouts are
// compared with files that have none.
func (s *scenario) drawFacts() {
	if s.tickets == nil && s.rand.intN("facts", 2) == 0 {
		s.cfg.Facts = config.Facts{Parquet: true, PartItems: 1 + s.rand.intN("part items", 60)}
	}
}

// factRow are the columns of facts that are checked.
type factRow struct {
	Item       uint64  `parquet:"item"`
	ID         *string `parquet:"id,optional"`
	Class      *string `parquet:"class,optional"`
	Completion *string `parquet:"completion,optional"`
}

// checkFacts checks that the run's facts have each item once, in order, with the outcome that
// the output files have.
func (s *scenario) checkFacts(ctx context.Context, answers, errs [][]byte) {
	if !s.cfg.Facts.Parquet {
		return
	}
	var all []factRow
	for n := 0; ; n++ {
		key := record.FactsKey(s.id, n)
		if _, err := s.store.Stat(ctx, key, ""); fault.Is(err, fault.NotFound) && n > 0 {
			break
		}
		b := s.object(ctx, key)
		rows, err := parquet.Read[factRow](bytes.NewReader(b), int64(len(b)))
		if err != nil {
			s.audit.breakf("part %d of the facts can't be read: %v", n, err)
			return
		}
		all = append(all, rows...)
	}
	if len(all) != len(answers)+len(errs) {
		s.audit.breakf("I1: %d facts, %d rows in the output files", len(all), len(answers)+len(errs))
		return
	}
	for n, f := range all {
		if n > 0 && f.Item <= all[n-1].Item {
			s.audit.breakf("I4: the fact of item %d is behind that of item %d", f.Item, all[n-1].Item)
		}
		if len(errs) > 0 {
			failed, _ := dialect.ReadFailure(dialect.Plain, errs[0])
			if failed.Place.Item == f.Item {
				errs = errs[1:]
				if f.Class == nil || *f.Class != string(failed.Class) {
					s.audit.breakf("I1: the fact of item %d, which failed as %s, has another class", f.Item, failed.Class)
				}
				continue
			}
		}
		if len(answers) == 0 {
			s.audit.breakf("I1: the fact of item %d has no row in the output files", f.Item)
			return
		}
		o, err := dialect.ReadOutput(dialect.Plain, answers[0])
		answers = answers[1:]
		if err != nil || f.Class != nil || f.ID == nil || *f.ID != o.ID || f.Completion == nil ||
			*f.Completion != o.Texts[0] {
			s.audit.breakf("I1: the fact of item %d is not that of the row of %s: %v", f.Item, o.ID, err)
		}
	}
}
