package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// The files of a rollout, under runs/<run>/.
const (
	TrajectoriesFile = "trajectories.jsonl"  // a row for each answer with a verdict
	FailuresFile     = "failures.jsonl"      // a row for each answer without one, and for each line that is no ticket
	SelectionsFile   = "selections.jsonl"    // a row for each ticket
	ReviewFile       = "manual_review.jsonl" // a row for each ticket that a person shall look at
	MetricsFile      = "metrics_epoch.jsonl" // a row for each epoch
	AttemptsFile     = "attempts.jsonl"      // a row for each shard: who answered it
)

// about names the ticket of a row.
type about struct {
	Group   string  `json:"group_id"`
	Mission string  `json:"mission"`
	Label   *string `json:"label"` // null if there is none
	Epoch   int     `json:"epoch"`
	Batch   int     `json:"batch"`
	Step    int     `json:"step"` // of the guidance that it was answered under
}

// draw names the member of a row.
type draw struct {
	ID string `json:"id"` // of the row in completions.jsonl or errors.jsonl
	about
	Decode int   `json:"decode"`
	Sample int   `json:"sample"`
	Seed   int64 `json:"seed"`
}

// trajectory is a row of TrajectoriesFile.
type trajectory struct {
	draw
	Verdict   string          `json:"verdict"`
	Selected  bool            `json:"selected"`
	Score     *float64        `json:"score"`
	Advantage *float64        `json:"advantage"`
	Scores    json.RawMessage `json:"scores,omitempty"`
	Text      string          `json:"completion"`
	Finish    string          `json:"finish_reason"`
	Usage     json.RawMessage `json:"usage"`
	Response  json.RawMessage `json:"response,omitempty"`
}

// failure is a row of FailuresFile about a member.
type failure struct {
	draw
	Cause   string `json:"cause"`
	Message string `json:"message,omitempty"`
	Text    string `json:"completion,omitempty"` // of an answer without a verdict
}

// selected is a row of SelectionsFile.
type selected struct {
	about
	Verdict    *string          `json:"verdict"` // null without a selection
	ID         string           `json:"id,omitempty"`
	Agreement  float64          `json:"agreement"`
	Votes      []selection.Vote `json:"votes"`
	LabelMatch *bool            `json:"label_match"`
	Teaches    selection.Lesson `json:"teaches"`
	Review     selection.Review `json:"review"`
	Mean       *float64         `json:"mean"`
	Spread     *float64         `json:"spread"`
	Members    int              `json:"members"`
	Failed     map[string]int   `json:"failed,omitempty"`
}

// metrics is a row of MetricsFile.
type metrics struct {
	Epoch   int `json:"epoch"`
	Batches int `json:"batches"`
	Totals
	MeanAgreement *float64 `json:"agreement"`
	Accuracy      *float64 `json:"accuracy"` // of the selections that have a label
	MeanScore     *float64 `json:"score"`
}

// Attempt is a row of AttemptsFile: the shard of a batch and who answered it. It is the
// only file that may differ between two runs with the same answers.
type Attempt struct {
	Shard   int    `json:"shard"`
	Items   int    `json:"items"`
	Attempt uint64 `json:"attempt"`
	Worker  string `json:"worker,omitempty"`
}

// Ended is a rollout whose outcomes are final.
type Ended struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Outcomes iter.Seq2[Outcome, error] // of all members that were dispatched, in their order
	Attempts iter.Seq2[Attempt, error]
}

// Publish writes the files of the rollout, those that exist excepted, and returns the
// sums. They are a function of the outcomes.
func (e Ended) Publish(ctx context.Context) (record.Rollout, error) {
	reader, err := NewReader(e.Manifest.Config)
	if err != nil {
		return record.Rollout{}, err
	}
	p := publisher{Ended: e, reader: reader, files: map[string]*object{}}
	for _, name := range []string{TrajectoriesFile, FailuresFile, SelectionsFile, ReviewFile, MetricsFile, AttemptsFile} {
		p.files[name] = open(ctx, e.Blobs, record.OutputKey(e.Manifest.Run, name))
	}
	err = p.write(ctx)
	for _, name := range sortedKeys(p.files) {
		err = errors.Join(err, p.files[name].finish(err))
	}
	out := p.epoch.summary()
	out.Batches, out.Refused = p.epoch.Batches, p.refused
	return out, err
}

// publisher is a call of Publish.
type publisher struct {
	Ended
	reader  *Reader
	files   map[string]*object
	epoch   metrics
	refused int // lines that are no tickets
}

// lineCount counts the lines that are written through it.
type lineCount struct {
	w io.Writer
	n int
}

func (l *lineCount) Write(b []byte) (int, error) {
	l.n += bytes.Count(b, []byte{'\n'})
	return l.w.Write(b)
}

func (p *publisher) write(ctx context.Context) error {
	if err := p.refusedLines(ctx); err != nil {
		return err
	}
	var members []Outcome
	for o, err := range p.Outcomes {
		if err != nil {
			return err
		}
		if members = append(members, o); len(members) < p.Manifest.Config.Members() {
			continue
		}
		if err := p.ticket(members); err != nil {
			return err
		}
		members = members[:0]
	}
	if len(members) > 0 { // planning ended within a ticket
		if err := p.ticket(members); err != nil {
			return err
		}
	}
	p.epoch.MeanAgreement, p.epoch.Accuracy, p.epoch.MeanScore = p.epoch.Progress()
	if err := p.row(MetricsFile, p.epoch); err != nil {
		return err
	}
	for a, err := range p.Attempts {
		if err == nil {
			err = p.row(AttemptsFile, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ticket appends the rows of a ticket with these members.
func (p *publisher) ticket(members []Outcome) error {
	g, err := p.reader.Read(members)
	if err != nil {
		return err
	}
	return p.groupRows(g)
}

// row appends a row to a file.
func (p *publisher) row(file string, v any) error {
	_, err := p.files[file].Write(append(encode(v), '\n'))
	return err
}

// refusedLines copies what is known of the lines that are no tickets.
func (p *publisher) refusedLines(ctx context.Context) error {
	r, _, err := p.Blobs.Get(ctx, refusedKey(p.Manifest.Run), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) { // the run ended before its first batch
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	lines := &lineCount{w: p.files[FailuresFile]}
	_, err = io.Copy(lines, r)
	p.refused = lines.n
	return err
}

// groupRows appends the rows of a ticket.
func (p *publisher) groupRows(g Group) error {
	p.epoch.Add(g)
	first := g.members[0]
	p.epoch.Batches = first.Batch + 1
	of := about{Group: g.ticket.Group, Mission: g.ticket.Mission, Epoch: first.Epoch, Batch: first.Batch, Step: first.Step}
	if g.ticket.Label != "" {
		of.Label = &g.ticket.Label
	}
	for n, m := range g.members {
		d := draw{m.id, of, m.Decode, m.Sample, m.Seed}
		if cause := g.parsed[n].Cause; cause != "" {
			if err := p.row(FailuresFile, failure{d, cause, m.message, m.text}); err != nil {
				return err
			}
			continue
		}
		t := trajectory{draw: d, Verdict: m.verdict, Selected: n == g.selection.Member, Score: m.score, Scores: m.scores,
			Text: m.text, Finish: m.finish, Usage: m.usage, Response: m.response}
		if a, ok := g.stats.Advantage(g.parsed[n]); ok {
			t.Advantage = &a
		}
		if err := p.row(TrajectoriesFile, t); err != nil {
			return err
		}
	}
	s := selected{about: of, Agreement: g.selection.Agreement, Votes: g.selection.Votes,
		LabelMatch: g.selection.LabelMatch, Teaches: g.selection.Teaches, Review: g.selection.Review,
		Members: len(g.members), Failed: g.failures()}
	if g.selection.Member >= 0 {
		s.Verdict, s.ID = &g.selection.Answer, g.members[g.selection.Member].id
	}
	if g.stats.Scored > 0 {
		s.Mean, s.Spread = &g.stats.Mean, &g.stats.Spread
	}
	if err := p.row(SelectionsFile, s); err != nil || s.Review == selection.NoReview {
		return err
	}
	return p.row(ReviewFile, s)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
