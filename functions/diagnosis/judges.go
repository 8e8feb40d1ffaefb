package diagnosis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"rollout/functions/internal/judging"
	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/judge"
	"rollout/shared/jsonl"
	"rollout/shared/text"
)

// JudgeReport is what a judge was asked about an answer of an item, and what came of it.
type JudgeReport struct {
	Grader string    `json:"grader"`
	Item   uint64    `json:"item"`   // what is asked, by its index in the run
	Answer int       `json:"answer"` // of the item that is judged, from 0
	State  ItemState `json:"state"`
	// Score is null before the judge has answered, and if it gave none: then Cause says
	// why.
	Score *float64    `json:"score"`
	Cause grade.Cause `json:"cause"`
	Said  string      `json:"said"`          // the begin of the judge's answer, or why it has none
	Cut   bool        `json:"cut,omitempty"` // the judge did not end its answer
}

// maxSaid bounds what is shown of a judge's answer, in bytes.
const maxSaid = 200

// judged reports what the judges of the run are asked about the item's answers.
func (x *Explainer) judged(ctx context.Context, p status.Progress, t *ItemReport, now time.Time) error {
	if t.State != Answered && t.State != Checkpointed || t.Class != "" {
		return nil
	}
	for number, grader := range p.Manifest.Config.Judges() {
		g := p.Manifest.Config.Grades[grader]
		j, err := judge.New(g)
		if err != nil {
			return err
		}
		asked, err := x.askedAbout(ctx, judging.Judge{Index: x.index, Manifest: p.Manifest, Number: number}, p, t.Item)
		if fault.Is(err, fault.NotFound) { // cleaned up
			continue
		}
		if err != nil {
			return err
		}
		if asked == nil && !p.State.Phase.Ended() && !p.State.Complete {
			t.say("the judge %s reads its answer when all answers of the run are there, unless the line lacks "+
				"an expected value", g.Name)
		}
		for _, f := range asked {
			r, err := x.verdict(ctx, p, f, j, now)
			if err != nil {
				return err
			}
			r.Grader = g.Name
			t.Judges = append(t.Judges, r)
			t.say("the judge %s is asked about answer %d as item #%d: %s", g.Name, r.Answer, r.Item, r.outcome())
		}
	}
	return nil
}

// askedAbout returns the judge's lines about the answers of an item; nil without any.
func (x *Explainer) askedAbout(ctx context.Context, j judging.Judge, p status.Progress,
	item uint64) (found []foundLine, err error) {
	lo, hi, err := j.Shards(ctx, max(p.State.Shards, p.Plan.Shards))
	if err != nil || lo == hi {
		return nil, err
	}
	n, err := j.Seek(ctx, lo, hi, judge.Ref{Item: item})
	for ; err == nil && n < hi; n++ {
		lines, err := j.Lines(ctx, n)
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			ref, err := judging.RefOf(l.Bytes)
			switch {
			case err != nil:
				return nil, err
			case ref.Item > item:
				return found, nil
			case ref.Item == item:
				found = append(found, foundLine{l.Place, l})
			}
		}
	}
	return found, err
}

// verdict reports what came of one of the judge's lines.
func (x *Explainer) verdict(ctx context.Context, p status.Progress, f foundLine, j *judge.Judge,
	now time.Time) (r JudgeReport, err error) {
	asked, err := x.itemReport(ctx, p, f, now)
	if err != nil {
		return r, err
	}
	ref, err := judging.RefOf(f.line.Bytes)
	r = JudgeReport{Item: asked.Item, Answer: ref.Answer, State: asked.State, Said: asked.Why}
	switch {
	case err != nil:
		return r, err
	case asked.State == NotProcessed:
		r.Cause = grade.Stopped
	case asked.State == Failed:
		r.Cause = grade.JudgeFailed
	case asked.State == Answered && asked.Row != nil:
		row, err := x.rowAt(ctx, *asked.Row)
		if err != nil {
			return r, err
		}
		s, said, err := judging.ReadScore(j, row)
		if err != nil {
			return r, err
		}
		if r.Cause = s.Cause; s.Cause == "" {
			r.Score = &s.Value
		}
		r.Said, r.Cut = text.Truncate(said[0].Text, maxSaid, "…"), said[0].Cut
	}
	return r, nil
}

// outcome renders the report for people.
func (r JudgeReport) outcome() string {
	switch {
	case r.Score != nil:
		return fmt.Sprintf("it says %q, which scores %v", r.Said, *r.Score)
	case r.Cause == grade.Unparseable && r.Cut:
		return fmt.Sprintf("no score: its answer %q was cut; raise its max_tokens", r.Said)
	case r.Cause == grade.Unparseable:
		return fmt.Sprintf("no score: its answer %q has none that can be read", r.Said)
	case r.Cause != "":
		return fmt.Sprintf("no score (%s): %s", r.Cause, r.Said)
	case r.State == Answered: // before its shard was sealed, so that its row stands in no result
		return "it is answered, and its score stands in the row of the answer"
	}
	return "it is " + strings.ReplaceAll(string(r.State), "_", " ")
}

// rowAt reads the row at a place.
func (x *Explainer) rowAt(ctx context.Context, at RowPlace) ([]byte, error) {
	r, _, err := x.ports.Blobs.Get(ctx, at.Key, blob.GetOptions{Offset: at.Offset})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", at.Key)
	}
	defer r.Close() // a read loses nothing
	row, err := bufio.NewReader(io.LimitReader(r, 4*jsonl.MaxLine)).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = fault.New(fault.Corrupt, "it has no row at byte %d", at.Offset)
	}
	return row, fault.Wrap(err, "read %s", at.Key)
}
