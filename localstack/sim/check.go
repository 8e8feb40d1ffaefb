package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"rollout/gpuworker/engine"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// generatedAt is the one thing in a row that no two runs share.
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// check compares what the run left with what one pass over its files, without
// any machinery, says.
func (s *scenario) check(ctx context.Context, st run.State) {
	s.checkPhase(st)
	out := split(s.object(ctx, record.OutputKey(s.id, record.CompletionsFile)))
	errs := split(s.object(ctx, record.OutputKey(s.id, record.ErrorsFile)))
	var item, copies uint64
	firsts := firsts{}
	for _, f := range s.files {
		for _, l := range f.lines {
			first := s.firstOf(firsts, l, item)
			if first != nil && first.item != item {
				copies++
			}
			out, errs = s.checkItem(ctx, f, l, item, first, st, out, errs)
			item++
		}
	}
	if len(out)+len(errs) > 0 {
		s.audit.breakf("I1: %d output rows and %d error rows are no item's", len(out), len(errs))
	}
	var sum record.Summary
	if err := json.Unmarshal(s.object(ctx, record.OutputKey(s.id, record.SummaryFile)), &sum); err != nil {
		s.t.Fatal(err)
	}
	if sum.Items != item || sum.Completed+sum.Failed != item || sum.Phase != string(st.Phase) {
		s.audit.breakf("I1: summary says %d items, %d completed, %d failed, %s; there are %d, and the run is %s", sum.Items, sum.Completed, sum.Failed, sum.Phase, item, st.Phase)
	}
	if sum.Copies != copies {
		s.audit.breakf("summary says %d copies, there are %d", sum.Copies, copies)
	}
	byClass := 0
	for _, n := range sum.FailedByClass {
		byClass += n
	}
	if uint64(byClass) != sum.Failed {
		s.audit.breakf("I1: %d failed, %v by class", sum.Failed, sum.FailedByClass)
	}
	shards := st.Shards + 1
	seconds := uint64(st.EndedAt.Sub(s.begun).Seconds()) + 1
	if limit := uint64(20*shards) + 8*seconds + 50; st.Steps > limit {
		s.audit.breakf("I8: %d steps for %d shards in %d s", st.Steps, shards, seconds)
	}
}

func (s *scenario) checkPhase(st run.State) {
	ok := st.Phase == run.Completed || st.Phase == run.CompletedWithErrors
	switch s.plot {
	case stops:
		ok = ok || st.Phase == run.Stopped
	case expires:
		ok = ok || st.Phase == run.Expired
	case exhaustsTokens:
		ok = ok || st.Phase == run.OverBudget
	case failsFast:
		ok = ok || st.Phase == run.Failed
	}
	if !ok {
		s.audit.breakf("the run ended as %s (%s)", st.Phase, st.Message)
	}
}

// checkItem takes the item's row off whichever file has it.
func (s *scenario) checkItem(ctx context.Context, f file, l line, item uint64, first *first, st run.State, out, errs [][]byte) (o, e [][]byte) {
	place := dialect.Place{Item: item, File: f.key, Line: uint64(l.number)}
	wantOut, wantErr := s.expect(ctx, l, place)
	endsFirst := st.Reason != run.ReasonDone
	if first != nil && first.item != item {
		wantOut, wantErr = s.expectCopy(l, place, first)
		endsFirst = first.row == nil // else its answer is there, whatever ended
	}
	switch {
	case len(out) > 0 && wantOut != nil && bytes.Equal(masked(out[0]), masked(wantOut)):
		first.answered(item, out[0], "")
		return out[1:], errs
	case len(errs) > 0 && wantErr != nil && bytes.Equal(errs[0], wantErr):
		first.answered(item, errs[0], l.class)
		return out, errs[1:]
	case len(errs) > 0 && endsFirst && s.endedFirst(errs[0], l, place, st):
		return out, errs[1:]
	}
	s.audit.breakf("I1, I4, I10: item %d (%s) is neither next among the outputs nor the errors: want %s%s, next are %s and %s", item, l.bytes, wantOut, wantErr, next(out), next(errs))
	return out, errs
}

// next is the first of rows, for eyes.
func next(rows [][]byte) []byte {
	if len(rows) == 0 {
		return []byte("no row")
	}
	return rows[0]
}

// endedFirst reports whether the row says that the run ended before the item
// was answered, under the item's own id.
func (s *scenario) endedFirst(row []byte, l line, place dialect.Place, st run.State) bool {
	var r struct {
		ID    *string
		Item  uint64
		Class fault.Class
		Line  uint64
	}
	if json.Unmarshal(row, &r) != nil {
		return false
	}
	id := l.id
	if it, err := dialect.Parse(dialect.Plain, l.bytes); err == nil {
		id = it.RowID(it.ItemID(s.model(), place.Item))
	}
	return r.Item == place.Item && r.Class == st.Reason.Class() && r.Line == place.Line && (id == "" || r.ID != nil && *r.ID == id)
}

func (s *scenario) model() dialect.Model {
	return dialect.Model{URI: "mock", ID: identity.Model("mock", ""), Params: s.cfg.Sampling.Canonical()}
}

// expect is the item's row of an undisturbed run: an output or an error.
func (s *scenario) expect(ctx context.Context, l line, place dialect.Place) (out, errRow []byte) {
	failed := func(id string, err error) (o, e []byte) {
		return nil, dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: id, Place: place, Class: l.class, Message: err.Error()})
	}
	it, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		return failed("", err)
	}
	id := it.ItemID(s.model(), place.Item)
	if l.class == fault.DuplicateID {
		return nil, s.duplicate(l, place)
	}
	if l.class == fault.Poison {
		return failed(it.RowID(id), errors.New(poisonMessage))
	}
	a, err := answer(ctx, engine.Request{Endpoint: engine.Endpoint(it.Endpoint), Body: it.Body(nil, "mock", s.cfg.Sampling, id, 0)})
	if err != nil {
		return failed(it.RowID(id), err)
	}
	r := dialect.Result{ID: it.RowID(id), Answers: []dialect.Answer{{Text: a.Text, FinishReason: a.FinishReason, Usage: dialect.Usage(a.Usage)}}, GeneratedAt: s.begun}
	return dialect.AppendOutput(nil, it, s.model(), r), nil
}

// duplicate is the error row of a line whose id an earlier one has.
func (s *scenario) duplicate(l line, place dialect.Place) []byte {
	for _, f := range s.files {
		for _, first := range f.lines {
			if first.id == l.id {
				return dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: l.id, Place: place, Class: fault.DuplicateID,
					Message: duplicateMessage(f.key, first.number)})
			}
		}
	}
	return nil
}

func masked(row []byte) []byte { return generatedAt.ReplaceAll(row, []byte(`"generated_at":""`)) }

func split(b []byte) [][]byte {
	var out [][]byte
	for l := range bytes.Lines(b) {
		out = append(out, l)
	}
	return out
}

func duplicateMessage(file string, line int) string {
	return fmt.Sprintf("line %d of %s has the same id and came first (give every line an id of its own)", line, file)
}
