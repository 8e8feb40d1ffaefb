package sim

import (
	"bytes"
	"context"
	"fmt"

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

// runFacts are the parts of a run's facts, and the rows of its output files. They are compared when
// the simulation is over: all readers of Parquet share decoders, whose channels may not be used in
// two bubbles of simulated time.
type runFacts struct{ parts, answers, errs [][]byte }

// takeFacts keeps the run's facts.
func (s *scenario) takeFacts(ctx context.Context, answers, errs [][]byte) {
	if !s.cfg.Facts.Parquet {
		return
	}
	f := runFacts{answers: answers, errs: errs}
	for n := 0; ; n++ {
		key := record.FactsKey(s.id, n)
		if _, err := s.store.Stat(ctx, key, ""); fault.Is(err, fault.NotFound) && n > 0 {
			break
		}
		f.parts = append(f.parts, s.object(ctx, key))
	}
	s.facts = append(s.facts, f)
}

// check checks that the facts have each item once, in order, with the outcome that the output files
// have.
func (f runFacts) check() error {
	var all []factRow
	for n, b := range f.parts {
		rows, err := parquet.Read[factRow](bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return fmt.Errorf("part %d of the facts can't be read: %w", n, err)
		}
		all = append(all, rows...)
	}
	answers, errs := f.answers, f.errs
	if len(all) != len(answers)+len(errs) {
		return fmt.Errorf("I1: %d facts, %d rows in the output files", len(all), len(answers)+len(errs))
	}
	for n, row := range all {
		if n > 0 && row.Item <= all[n-1].Item {
			return fmt.Errorf("I4: the fact of item %d is behind that of item %d", row.Item, all[n-1].Item)
		}
		if len(errs) > 0 {
			failed, _ := dialect.ReadFailure(dialect.Plain, errs[0])
			if failed.Place.Item == row.Item {
				errs = errs[1:]
				if row.Class == nil || *row.Class != string(failed.Class) {
					return fmt.Errorf("I1: the fact of item %d, which failed as %s, has another class", row.Item, failed.Class)
				}
				continue
			}
		}
		if len(answers) == 0 {
			return fmt.Errorf("I1: the fact of item %d has no row in the output files", row.Item)
		}
		o, err := dialect.ReadOutput(dialect.Plain, answers[0])
		answers = answers[1:]
		if err != nil || row.Class != nil || row.ID == nil || *row.ID != o.ID || row.Completion == nil ||
			*row.Completion != o.Texts[0] {
			return fmt.Errorf("I1: the fact of item %d is not that of the row of %s: %w", row.Item, o.ID, err)
		}
	}
	return nil
}
