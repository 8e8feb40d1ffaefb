package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"rollout/gpuworker/engine"
	"rollout/localstack/rounds"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// generatedAt matches the only part of a row that differs between two runs.
var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// check compares the run's output with the rows that a single pass over its input
// files gives.
func (s *scenario) check(ctx context.Context, st run.State) {
	s.failures, s.ended = failures{}, s.findCommitted(ctx, st)
	s.isDone, s.verdicts = st.Reason == run.ReasonDone, nil
	s.beginReference(ctx, st)
	left := rows{
		out:  split(s.object(ctx, record.OutputKey(s.id, record.CompletionsFile))),
		errs: split(s.object(ctx, record.OutputKey(s.id, record.ErrorsFile))),
	}
	for _, row := range left.errs {
		if classOf(row) != fault.Pruned {
			s.failures.all++
		}
	}
	s.pruned = s.checkConstraints(ctx, st)
	if s.parent != nil {
		s.parent.left = rows{s.parent.out, s.parent.errs}
	}
	var index, judged, copies uint64
	asked := originals{}
	answers, errs, from := left.out, left.errs, 0 // from is the first answer of the round
	for k := 0; k < len(s.files); k++ {
		f := s.files[k]
		var unseen [][]byte // the answers that are in no file
		for _, l := range f.lines {
			it := item{line: l, original: s.originalOf(asked, l, index),
				place: dialect.Place{Item: index, File: f.key, Line: uint64(l.number)}}
			switch {
			case l.role > 0 && s.judging:
				judged++
			case l.role > 0 && s.tickets != nil:
				s.checkUnseen(ctx, it, st)
				judged++
			case l.role > 0:
				if out, _ := s.expect(ctx, l, it.place, nil); !s.pruned.Has(int(index)) {
					unseen = append(unseen, out)
				}
				judged++
			case !s.keeps(it, &left):
				if it.isCopy() {
					copies++
				}
				s.checkItem(ctx, it, st, &left)
			}
			index++
		}
		if k+1 >= s.inputs { // the round is over
			to := len(answers) - len(left.out)
			last := answers[from:to]
			if len(unseen) > 0 {
				last = unseen
			}
			if f := s.appended(k+1, last, index, st); len(f.lines) > 0 {
				s.files = append(s.files, f)
			}
			from = to
		}
	}
	s.checkMadeFrom(ctx)
	if len(left.out)+len(left.errs) > 0 {
		s.audit.breakf("I1: %d output rows and %d error rows belong to no item", len(left.out), len(left.errs))
	}
	var sum record.Summary
	if err := json.Unmarshal(s.object(ctx, record.OutputKey(s.id, record.SummaryFile)), &sum); err != nil {
		s.t.Fatal(err)
	}
	if n := index - judged; sum.Items != n || sum.Completed+sum.Failed != n || sum.Phase != string(st.Phase) {
		s.audit.breakf("I1: the summary has %d items, %d completed, %d failed, phase %s; want %d items, phase %s",
			sum.Items, sum.Completed, sum.Failed, sum.Phase, n, st.Phase)
	}
	s.checkRoles(sum, st, index-judged, judged)
	s.checkScores(answers, sum)
	s.takeFacts(ctx, answers, errs)
	s.checkRollout(ctx, st, answers, errs, sum)
	if sum.Copies != copies {
		s.audit.breakf("the summary has %d copies, want %d", sum.Copies, copies)
	}
	byClass := 0
	for _, n := range sum.FailedByClass {
		byClass += n
	}
	if uint64(byClass) != sum.Failed {
		s.audit.breakf("I1: %d failed, %v by class", sum.Failed, sum.FailedByClass)
	}
	s.checkEnd(ctx, st, s.failures)
	s.checkBudget(ctx, st)
	s.checkTokens(ctx, st, sum)
	s.checkCost(st, sum)
	shards := st.Shards + 1
	seconds := uint64(st.EndedAt.Sub(s.startedAt).Seconds()) + 1
	if limit := uint64(20*shards) + 8*seconds + 50; st.Steps > limit {
		s.audit.breakf("I8: %d steps for %d shards in %d s", st.Steps, shards, seconds)
	}
}

// item is an item of the input to check.
type item struct {
	line     line
	place    dialect.Place
	original *original // nil if its request is sent in any case
}

// isCopy reports whether the item's request is sent for another item.
func (it item) isCopy() bool { return it.original != nil && it.original.item != it.place.Item }

// rows are the rows of the output files that are not checked yet.
type rows struct{ out, errs [][]byte }

// checkItem checks that the next row of one file is the item's, and removes it.
func (s *scenario) checkItem(ctx context.Context, it item, st run.State, left *rows) {
	wantOut, wantErr := s.expect(ctx, it.line, it.place, next(left.out))
	mayBeMissing := st.Reason != run.ReasonDone // the run ended before the item was answered
	class := st.Reason.Class()
	if s.pruned.Has(int(it.place.Item)) {
		wantOut, wantErr, mayBeMissing, class = nil, nil, true, fault.Pruned
	}
	if it.isCopy() {
		wantOut, wantErr = s.expectCopy(it.line, it.place, it.original)
		mayBeMissing = it.original.row == nil // a copy has an answer if its original has one
	}
	switch {
	case len(left.out) > 0 && wantOut != nil && bytes.Equal(masked(left.out[0]), masked(wantOut)):
		it.original.record(it.place.Item, left.out[0], "")
		s.noteOpenScore(it.place.Item, left.out[0])
		left.out = left.out[1:]
	case len(left.errs) > 0 && wantErr != nil && bytes.Equal(left.errs[0], wantErr):
		it.original.record(it.place.Item, left.errs[0], it.line.class)
		s.failures.own++
		left.errs = left.errs[1:]
	case len(left.errs) > 0 && s.isBlamed(left.errs[0], it):
		it.original.record(it.place.Item, left.errs[0], classOf(left.errs[0]))
		s.failures.own++
		left.errs = left.errs[1:]
	case len(left.errs) > 0 && mayBeMissing && s.isUnansweredRow(left.errs[0], it.line, it.place, class):
		if class != fault.Pruned && !it.isCopy() {
			s.failures.unanswered++
			s.mayMiss(it)
		}
		left.errs = left.errs[1:]
	default:
		s.audit.breakf("I1, I4, I10: item %d (%s) is the next row of neither file: want %s%s, next are %s and %s",
			it.place.Item, it.line.bytes, wantOut, wantErr, next(left.out), next(left.errs))
	}
}

func classOf(errRow []byte) fault.Class {
	f, _ := dialect.ReadFailure(dialect.Plain, errRow)
	return f.Class
}

// next is the first row, for messages.
func next(rows [][]byte) []byte {
	if len(rows) == 0 {
		return []byte("no row")
	}
	return rows[0]
}

// isBlamed reports whether the row is the error row of an item whose prompt is bad, or that
// is charged for a setting that the user has not mended, with the server's words.
func (s *scenario) isBlamed(row []byte, it item) bool {
	l := it.line
	if it.isCopy() || l.class == fault.DuplicateID || l.class == fault.InvalidLine ||
		!s.isErrorRow(row, l, it.place, classOf(row)) {
		return false
	}
	f, ok := dialect.ReadFailure(dialect.Plain, row)
	return ok && s.http.explain(string(l.bytes), f.Class, f.Message)
}

// isUnansweredRow reports whether the row says, under the item's own id, that the
// run ended before the item was answered.
func (s *scenario) isUnansweredRow(row []byte, l line, place dialect.Place, class fault.Class) bool {
	return s.isErrorRow(row, l, place, class)
}

// isErrorRow reports whether the row is of the item, under its own id, with the class.
func (s *scenario) isErrorRow(row []byte, l line, place dialect.Place, class fault.Class) bool {
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
		model, _ := s.model(l)
		id = it.RowID(it.ItemID(model, place.Item))
	}
	return r.Item == place.Item && r.Class == class && r.Line == place.Line &&
		(id == "" || r.ID != nil && *r.ID == id)
}

// model returns the model that answers the line, and its sampling parameters.
func (s *scenario) model(l line) (dialect.Model, config.Sampling) {
	uri, sampling := "mock", s.cfg.Sampling
	switch {
	case s.tickets != nil && l.role == reflectRole:
		uri, sampling = cmp.Or(s.tickets.reflector, uri), s.cfg.Reflection.ReflectionSampling()
	case s.tickets == nil && l.role > 0:
		uri, sampling = rounds.JudgeModel, config.Sampling{}
	}
	m := dialect.Model{URI: uri, ID: identity.Model(uri, ""), Params: sampling.Canonical()}
	if s.original != nil {
		m.Original = &dialect.Model{URI: uri, ID: m.ID, Params: s.original}
	}
	return m, sampling
}

// expect is the item's row of an undisturbed run: an output row or an error row. row
// is the next output row, which may be the item's.
func (s *scenario) expect(ctx context.Context, l line, place dialect.Place, row []byte) (out, errRow []byte) {
	failed := func(id string, err error) (o, e []byte) {
		return nil, dialect.AppendError(nil, dialect.Plain,
			dialect.Failure{ID: id, Place: place, Class: l.class, Message: err.Error()})
	}
	it, err := dialect.Parse(dialect.Plain, l.bytes)
	if err != nil {
		return failed("", err)
	}
	model, sampling := s.model(l)
	id := it.ItemID(model, place.Item)
	if l.class == fault.DuplicateID {
		return nil, s.duplicate(l, place)
	}
	if l.class == fault.Poison {
		return failed(it.RowID(id), errors.New(poisonMessage))
	}
	if s.http != nil {
		if _, isBad := s.http.faults.badPromptIn(string(l.bytes)); isBad || l.class == fault.Refused {
			return nil, nil // its row depends on which server answers: see isBlamed
		}
	}
	a, err := answer(ctx, engine.Request{Endpoint: engine.Endpoint(it.Endpoint),
		Body: it.Body(nil, model.URI, sampling, id, 0)})
	if err != nil {
		return failed(it.RowID(id), err)
	}
	r := dialect.Result{ID: it.RowID(id), Answers: []dialect.Answer{{Text: a.Text, FinishReason: a.FinishReason,
		Usage: dialect.Usage(a.Usage)}}, GeneratedAt: s.startedAt,
		Scores: s.expectScores(l, a.Text, row)}
	return dialect.AppendOutput(nil, it, model, r), nil
}

// duplicate is the error row of a line whose id an earlier line has.
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

// masked removes the time of a row.
func masked(row []byte) []byte { return generatedAt.ReplaceAll(row, []byte(`"generated_at":""`)) }

func split(b []byte) [][]byte {
	var out [][]byte
	for l := range bytes.Lines(b) {
		out = append(out, l)
	}
	return out
}

// duplicateMessage is the error of a line with the id of an earlier line.
func duplicateMessage(file string, line int) string {
	return fmt.Sprintf("line %d of %s has the same id and came first (give every line an id of its own)", line, file)
}
