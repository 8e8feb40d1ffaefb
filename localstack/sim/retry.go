package sim

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// retries draws how often the ended run is retried: a child of it, and then a child of
// that one.
func (s *scenario) retries() int {
	if !s.mayRetry() || s.rand.intN("retries", 3) > 0 {
		return 0
	}
	return 1 + s.rand.intN("more retries", 2)
}

// mayRetry reports whether the run is of a kind whose items can be asked again.
func (s *scenario) mayRetry() bool {
	return s.rounds == 0 && s.tickets == nil && s.constraints.row == 0 && !s.judging
}

// drawSelection draws which items a child asks again.
func (s *scenario) drawSelection() record.Selection {
	var sel record.Selection
	switch s.rand.intN("selection", 6) {
	case 0:
		sel.Only = []string{record.SelectAll}
	case 1:
		sel.Only = []string{record.SelectUnanswered}
	case 2:
		sel.Only = []string{string(fault.Refused), string(fault.CanceledItem)}
	case 3:
		if !s.cfg.Dedupe.Enabled {
			for range 1 + s.rand.intN("selected", 20) {
				sel.Items.Add(s.rand.intN("item", 150))
			}
			return sel
		}
		fallthrough
	default:
		sel.Only = []string{record.SelectFailed}
	}
	return sel
}

// drawSettings draws settings with which a child asks its items.
func (s *scenario) drawSettings() []string {
	if s.rand.intN("retry settings", 3) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("sampling.top_k=%d", 1+s.rand.intN("top_k", 100))}
}

// changeSettings changes the settings of the run to those of its child. Its items keep
// the ids and the seeds that they have by the first settings.
func (s *scenario) changeSettings(set []string) {
	s.t.Helper()
	if len(set) == 0 {
		return
	}
	if s.original == nil {
		s.original = s.cfg.Sampling.Canonical()
	}
	var err error
	if s.cfg, err = s.cfg.Set(set); err != nil {
		s.t.Fatal(err)
	}
}

// retry asks for a child of the ended run, and draws what the user does to it. It
// returns false if the run has no item to ask again.
func (s *scenario) retry(ctx context.Context) bool {
	sel, set := s.drawSelection(), s.drawSettings()
	child, err := s.api().Retry(ctx, s.id, sel, set)
	if err != nil {
		if !fault.Is(err, fault.Conflict) {
			s.t.Errorf("seed %d: retry: %v", s.seed, err)
		}
		return false
	}
	s.tracef("user: retry %s of %s: %s %s", child.Run, s.id, sel, set)
	s.changeSettings(set)
	s.parent = &family{selection: sel, out: split(s.object(ctx, record.OutputKey(s.id, record.CompletionsFile))),
		errs: split(s.object(ctx, record.OutputKey(s.id, record.ErrorsFile)))}
	s.id, s.retriedAt = child.Run, time.Now()
	s.spending.follow(s.id)
	s.http.follow()
	s.faultsEnded.Store(false)
	if s.action == undisturbed { // the others are those of the config, which the child has too
		s.action = s.http.allowed(action(s.rand.intN("child's plot", 3)))
	}
	return true
}

// family is the parent of a child run: the selection of the child's items, and the
// parent's rows.
type family struct {
	selection record.Selection
	out, errs [][]byte
	left      rows // that the check has not come to
}

// keptRow removes the parent's row of an item, which is the next one, and reports
// whether the child must keep it. class is that of an error row.
func (f *family) keptRow(item uint64) (row []byte, class fault.Class, keep bool) {
	if len(f.left.errs) > 0 {
		if e, ok := dialect.ReadFailure(dialect.Plain, f.left.errs[0]); ok && e.Place.Item == item {
			row, class, f.left.errs = f.left.errs[0], e.Class, f.left.errs[1:]
			return row, class, !f.selection.Selects(item, class)
		}
	}
	row, f.left.out = f.left.out[0], f.left.out[1:]
	return row, "", !f.selection.Selects(item, "")
}

// checkKept checks that the next row of one file is the row that a child keeps, and
// removes it.
func (s *scenario) checkKept(it item, row []byte, class fault.Class, left *rows) {
	from := &left.out
	if class != "" {
		from = &left.errs
	}
	if len(*from) == 0 || !bytes.Equal((*from)[0], row) {
		s.audit.breakf("item %d keeps the row %s of its parent, and has %s", it.place.Item, row, next(*from))
		return
	}
	*from = (*from)[1:]
}

// keeps checks an item whose row a child keeps from its parent. It returns false for
// an item that the child asks again, and in a run without a parent.
func (s *scenario) keeps(it item, left *rows) bool {
	if s.parent == nil {
		return false
	}
	row, class, keep := s.parent.keptRow(it.place.Item)
	if keep {
		s.checkKept(it, row, class, left)
		it.original.record(it.place.Item, row, class)
	}
	return keep
}
