// Package reporttest writes the files of an ended rollout whose numbers are known, for tests of its report.
package reporttest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/gate"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// Mission is the only mission of a run.
const Mission = "refunds"

// Members are the answers to each ticket.
const Members = 4

// Size says how large a run is. Its tickets are answered in two epochs of two batches each: the first batch under step
// 0 of the guidance, the second under step 1, and the second epoch under step 2, which is promoted.
//
// The verdict on ticket n is right at step 0 if n mod 10 is below 5, at step 1 if it is below 8, and at step 2 if it is
// from 1 to 9: every tenth ticket is lost. All answers to a right ticket are right and have score 1; of a wrong one, a
// quarter is right.
type Size struct {
	Tickets int // a multiple of 20
	// Text returns a text to add to everything that users and models write: nil adds nothing.
	Text func(n int) string
}

// Right reports whether the verdict on ticket n is right at a step.
func Right(n, step int) bool {
	switch step {
	case 0:
		return n%10 < 5
	case 1:
		return n%10 < 8
	}
	return n%10 > 0
}

// step returns under which step an epoch answers ticket n.
func (s Size) step(epoch, n int) int {
	switch {
	case epoch > 0:
		return 2
	case n < s.Tickets/2:
		return 0
	}
	return 1
}

// batch returns the batch of ticket n.
func (s Size) batch(epoch, n int) int { return epoch*2 + n*2/s.Tickets }

func (s Size) text(n int) string {
	if s.Text == nil {
		return ""
	}
	return s.Text(n)
}

// Manifest returns the manifest of the run.
func Manifest(id identity.RunID) record.Manifest {
	return record.Manifest{Schema: record.Schema, Run: id, Name: "refunds", Kind: "rollout",
		CreatedAt: ended.Add(-time.Minute), ModelURI: "clerk", Pool: "default",
		Inputs: []record.Input{{Key: "prompts/refunds.jsonl", Version: "v", Size: 1}},
		Config: config.Run{Missions: []config.Mission{{Name: Mission}}, Reflection: &config.Reflection{Pareto: 4}}}
}

var ended = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Save writes the files of the run.
func (s Size) Save(ctx context.Context, blobs blob.Store, id identity.RunID) error {
	f := files{Size: s, files: map[string]*bytes.Buffer{}}
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, rollout.TrajectoriesFile,
		rollout.FailuresFile, rollout.SelectionsFile, rollout.ReviewFile, rollout.MetricsFile,
		rollout.ReflectionFile, rollout.CandidatesFile, rollout.FrontsFile, rollout.AttemptsFile} {
		f.files[name] = &bytes.Buffer{}
	}
	for epoch := range 2 {
		for n := range s.Tickets {
			f.ticket(epoch, n)
		}
		f.row(rollout.MetricsFile, f.metrics(epoch))
	}
	f.row(rollout.AttemptsFile, rollout.Attempt{Shard: 0, Items: 1, Attempt: 1, Worker: "w"})
	f.row(rollout.AttemptsFile, rollout.Attempt{Shard: 1, Items: 1, Attempt: 2, Worker: "w"})
	if err := f.learnt(ctx, blobs, id); err != nil {
		return err
	}
	for name, b := range f.files {
		if err := put(ctx, blobs, record.OutputKey(id, name), b.Bytes()); err != nil {
			return err
		}
	}
	atStart := .5
	return put(ctx, blobs, record.OutputKey(id, record.SummaryFile), record.Encode(record.Summary{
		Schema: record.Schema, Run: id, Name: "refunds" + s.text(0), Phase: "completed",
		Items: uint64(2 * s.Tickets * Members),
		Model: "clerk", EndedAt: ended, Seconds: 60, CostUSD: 1.25, PromptTokens: 1234, CompletionTokens: 567,
		Rollout: &record.Rollout{Reflections: 3, Accepted: 2,
			Missions: map[string]record.Mission{Mission: {HoldoutTickets: 90, HoldoutAtStart: &atStart}}},
		Roles: []record.RoleCounts{{Name: "answer", Model: "clerk", Items: 8, PromptTokens: 1000}},
	}))
}

func put(ctx context.Context, blobs blob.Store, key string, b []byte) error {
	_, err := blobs.Put(ctx, key, bytes.NewReader(b), blob.PutOptions{})
	return err
}

// files are the files of a run while they are written.
type files struct {
	Size
	files map[string]*bytes.Buffer
}

func (f *files) row(name string, v any) {
	f.files[name].Write(append(record.Encode(v), '\n'))
}

// metrics returns the row of an epoch.
func (f *files) metrics(epoch int) rollout.Metrics {
	m := rollout.Metrics{Epoch: epoch, Batches: 2}
	m.Tickets = f.Tickets
	agreement, accuracy, score := 0.0, 0.0, 0.0
	for n := range f.Tickets {
		if Right(n, f.step(epoch, n)) {
			agreement, accuracy, score = agreement+1, accuracy+1, score+1
		} else {
			agreement, score, m.Review = agreement+.75, score+.25, m.Review+1
		}
	}
	for _, sum := range []*float64{&agreement, &accuracy, &score} {
		*sum /= float64(f.Tickets)
	}
	m.MeanAgreement, m.Accuracy, m.MeanScore = &agreement, &accuracy, &score
	return m
}

// ticket writes the rows of a ticket.
func (f *files) ticket(epoch, n int) {
	step := f.step(epoch, n)
	label, wrong := "refund", "refuse"
	if n%2 == 1 {
		label, wrong = wrong, label
	}
	right := Right(n, step)
	var sel rollout.Selected
	sel.Group, sel.Mission, sel.Label = fmt.Sprintf("r-%d%s", n, f.text(n)), Mission, &label
	sel.Epoch, sel.Batch, sel.Step, sel.Members = epoch, f.batch(epoch, n), step, Members
	sel.LabelMatch, sel.Agreement, sel.Mean = &right, 1, new(float64)
	sel.Verdict, *sel.Mean = &label, 1
	sel.Votes = []selection.Vote{{Answer: label, Count: Members}}
	if !right {
		sel.Verdict, sel.Agreement, *sel.Mean, sel.Review = &wrong, .75, .25, selection.UnexplainedMismatch
		sel.Votes = []selection.Vote{{Answer: wrong, Count: 3}, {Answer: label, Count: 1}}
	}
	for k := range Members {
		verdict, score := label, 1.0
		if !right && k > 0 {
			verdict, score = wrong, 0
		}
		var t rollout.Trajectory
		t.ID = fmt.Sprintf("t%d.e%d.d0.s%d", n, epoch, k)
		t.Group, t.Mission, t.Label, t.Epoch, t.Batch, t.Step = sel.Group, Mission, &label, epoch, sel.Batch, step
		t.Sample, t.Verdict, t.Score, t.Text = k, verdict, &score, "Verdict: "+verdict+f.text(n)
		t.Usage = []byte(`{"prompt_tokens":20,"completion_tokens":3}`)
		if t.Selected = k == Members-1; t.Selected {
			sel.ID = t.ID
		}
		f.row(rollout.TrajectoriesFile, t)
		f.row(record.CompletionsFile, completion{t.ID, []message{{"user", fmt.Sprintf("Case %d.%s", n, f.text(n))}}})
	}
	f.row(rollout.SelectionsFile, sel)
	if !right {
		f.row(rollout.ReviewFile, sel)
	}
	if n%10 == 9 && epoch == 0 {
		var miss rollout.Failure
		miss.ID, miss.Group, miss.Mission = fmt.Sprintf("t%d.e0.d1.s0", n), sel.Group, Mission
		miss.Batch, miss.Step, miss.Score = sel.Batch, step, new(float64)
		miss.Usage = []byte(`{"prompt_tokens":20,"completion_tokens":3}`)
		miss.Cause, miss.Message, miss.Text = "unparsable", "no verdict"+f.text(n), "Hm."+f.text(n)
		f.row(rollout.FailuresFile, miss)
		f.row(rollout.FailuresFile, rollout.Refused{Line: uint64(n), Group: sel.Group, Cause: fault.InvalidLine,
			Message: "it has no content" + f.text(n)})
	}
}

// completion is what is read of a row of completions.jsonl.
type completion struct {
	ID       string    `json:"id"`
	Messages []message `json:"messages"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// learnt writes the guidance, and three reflections: the second one is rejected.
func (f *files) learnt(ctx context.Context, blobs blob.Store, id identity.RunID) error {
	g, err := guidance.New(Mission, "Decide on refunds.", []string{"Be fair."})
	if err != nil {
		return err
	}
	for n, result := range []rollout.Result{rollout.ResultAccepted, rollout.ResultRejected, rollout.ResultAccepted} {
		if result == rollout.ResultAccepted {
			if err := put(ctx, blobs, rollout.GuidanceKey(id, Mission, g.Step), g.Encode()); err != nil {
				return err
			}
			g = guidance.Guidance{Schema: 1, Mission: Mission, Step: g.Step + 1, From: g.ContentID().String(),
				Scaffold: g.Scaffold, Entries: append(g.Entries[:len(g.Entries):len(g.Entries)],
					guidance.Entry{Text: fmt.Sprintf("Rule %d.", n), Hits: 7, Misses: 1, Since: g.Step + 1})}
		}
		f.reflection(n, result, g.Step)
	}
	for _, key := range []string{rollout.GuidanceKey(id, Mission, g.Step), rollout.PromotedKey(id, Mission)} {
		if err := put(ctx, blobs, key, g.Encode()); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) reflection(n int, result rollout.Result, step int) {
	won := result == rollout.ResultAccepted
	v := gate.Verdict{Accepted: won, Reason: gate.Accepted, Test: gate.Bootstrap, Tickets: 80, Before: .5, After: .75,
		Gain: .25, Interval: [2]float64{.125, .375}, P: .015, Alpha: .05, Fixed: 21, Broken: 1,
		Flipped: []gate.Flip{{Ticket: "t901", Before: 1, After: 0}, {Ticket: "t902", Before: 0, After: 1}}}
	r := rollout.Record{Number: n, Mission: Mission, Batch: n, Step: step, Result: result, Gated: true,
		Cases: []rollout.CaseRef{{Ticket: fmt.Sprintf("t%d", n), Group: fmt.Sprintf("r-%d", n),
			Why: "the selected verdict contradicts the right answer" + f.text(n)}},
		Candidates: []rollout.Candidate{
			{Plan: guidance.Plan{Operations: []guidance.Operation{{Kind: guidance.Add,
				Text: fmt.Sprintf("Rule %d.%s", n, f.text(n)), Reason: "Tickets need it." + f.text(n),
				Evidence: []string{fmt.Sprintf("t%d", n)}}}}, Gate: &v, Confirm: &v},
			{Refusal: "copies_ticket", Message: "it copies a ticket" + f.text(n)},
		}}
	if !won {
		v.Reason = gate.NotSignificant
		r.Why = "no candidate is shown to be better"
		r.Candidates[0].Confirm = nil
	} else {
		r.Step, r.NewStep, r.Holdout = step-1, step, &rollout.Measure{Tickets: 90, Score: .5 + float64(step)*.125}
	}
	if result == rollout.ResultRejected {
		r.Parent = "r0.1" + f.text(n)
	}
	f.row(rollout.ReflectionFile, r)
	score := .75
	f.row(rollout.FrontsFile, rollout.FrontRow{Reflection: n, Mission: Mission, Members: []rollout.FrontMember{
		{Name: fmt.Sprint("step ", step) + f.text(n), Best: 70, Score: &score},
		{Name: fmt.Sprintf("r%d.1", n), Parent: "step 0" + f.text(n), Best: 10}}})
}
