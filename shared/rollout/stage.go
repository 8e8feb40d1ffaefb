package rollout

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Stage is what an appended object of a rollout is: a global batch. It is an object
// beside it, and written first.
type Stage struct {
	Schema int `json:"schema"`
	Input  int `json:"input"` // the number of the appended object
	Epoch  int `json:"epoch"`
	Batch  int `json:"batch"` // from 0
	// From and To are the tickets of the batch: positions in the order of the epoch. Of
	// Tickets, which the run has in all, those before From are answered.
	From    int `json:"from"`
	To      int `json:"to"`
	Tickets int `json:"tickets"`
	Members int `json:"members"` // of each ticket
	Refused int `json:"refused"` // lines of the input that are no tickets
	// Guidance is what the tickets of each mission see: its step.
	Guidance map[string]int `json:"guidance"`
	// Totals are what is known of the batches before this one.
	Totals Totals `json:"totals"`
}

// maxStage bounds a stage, in bytes.
const maxStage = 1 << 20

func stageKey(run identity.RunID, input int) string {
	return key(run, fmt.Sprintf("stage/%06d.json", input))
}

// ReadStage reads the stage of an appended object. NotFound means that there is none.
func ReadStage(ctx context.Context, blobs blob.Store, run identity.RunID, number int) (s Stage, err error) {
	b, err := input.ReadObject(ctx, blobs, stageKey(run, number), maxStage)
	if err == nil {
		err = record.Decode(b, &s, stageKey(run, number))
	}
	return s, err
}

// save writes the stage, unless it exists.
func (s Stage) save(ctx context.Context, blobs blob.Store, run identity.RunID) error {
	return create(ctx, blobs, stageKey(run, s.Input), record.Encode(s))
}

// Batches returns how many batches the epoch has.
func (s Stage) Batches(c config.Run) int {
	size := c.RunnerOf().RolloutBatchSize
	return (s.Tickets + size - 1) / size
}

// Start returns the first stage of a run with that book.
func Start(m record.Manifest, number int, b Book) Stage {
	s := Stage{Schema: record.Schema, Input: number, Tickets: b.Tickets, Refused: b.Refused,
		Members: m.Config.Members(), Guidance: map[string]int{},
		To: min(b.Tickets, m.Config.RunnerOf().RolloutBatchSize)}
	for _, mission := range m.Config.Missions {
		s.Guidance[mission.Name] = 0
	}
	return s
}

// Next returns the stage of the next batch, and false if there is none. done are the
// totals of the batches up to this one.
func (s Stage) Next(c config.Run, done Totals) (next Stage, more bool) {
	next = s
	next.Input, next.Batch, next.From = s.Input+1, s.Batch+1, s.To
	next.To = min(s.Tickets, s.To+c.RunnerOf().RolloutBatchSize)
	next.Totals = done
	return next, next.From < next.To
}

// Items returns how many items the batch has.
func (s Stage) Items() int { return (s.To - s.From) * s.Members }

// Progress returns how far a run has come whose newest batch the stage is.
func (s Stage) Progress(c config.Run) record.Rollout {
	out := s.Totals.summary()
	out.Batch, out.Batches, out.Refused = s.Batch+1, s.Batches(c), s.Refused
	out.AllTickets, out.AllItems = s.Tickets, s.Tickets*s.Members
	return out
}

// Totals sum up the outcomes of tickets and their members.
type Totals struct {
	Tickets  int            `json:"tickets"`
	Answered int            `json:"answered"`         // members with a verdict
	Failed   map[string]int `json:"failed,omitempty"` // members without one, by cause
	// Selected is how many tickets have a selection, Agreement the sum of its shares of the
	// votes, and Review how many tickets a person shall look at.
	Selected  int     `json:"selected"`
	Agreement float64 `json:"agreement_sum"`
	Review    int     `json:"review"`
	// Labelled is how many of the selected tickets have a label, and Right how many of
	// these have it as their verdict.
	Labelled int `json:"labelled"`
	Right    int `json:"right"`
	// Scored is how many members have a score, and Score the sum of the scores.
	Scored int     `json:"scored"`
	Score  float64 `json:"score_sum"`
}

// Clone returns an independent copy.
func (t Totals) Clone() Totals {
	t.Failed = maps.Clone(t.Failed)
	return t
}

// summary returns the totals as users see them.
func (t Totals) summary() (out record.Rollout) {
	out = record.Rollout{Tickets: t.Tickets, Answered: t.Answered, Failed: t.Failed, Review: t.Review}
	out.Agreement, out.Accuracy, out.Score = t.Progress()
	return out
}

// ratio returns a/b, or nil if b is 0.
func ratio(a, b float64) *float64 {
	if b == 0 {
		return nil
	}
	r := a / b
	return &r
}

// Progress sums up the totals for users.
func (t Totals) Progress() (agreement, accuracy, score *float64) {
	return ratio(t.Agreement, float64(t.Selected)), ratio(float64(t.Right), float64(t.Labelled)),
		ratio(t.Score, float64(t.Scored))
}

// fail counts a member without a verdict.
func (t *Totals) fail(cause string) {
	if t.Failed == nil {
		t.Failed = map[string]int{}
	}
	t.Failed[cause]++
}

// guidanceOf returns the guidance that the tickets of a mission see.
func guidanceOf(c config.Run, mission string) string {
	var b bytes.Buffer
	for _, m := range c.Missions {
		if m.Name != mission {
			continue
		}
		b.WriteString(m.Scaffold)
		for i, e := range m.Entries {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			if i == 0 && m.Scaffold != "" {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%d. %s", i+1, e)
		}
	}
	return b.String()
}
