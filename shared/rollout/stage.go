package rollout

import (
	"context"
	"fmt"
	"maps"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// StageKind is what an appended object of a rollout asks.
type StageKind string

// The kinds of stages. Each is made from the results of the one before:
//
//	holdout* ─▶ answer ─┬─────────────────────────────────────────────────▶ answer ─▶ … ─▶ end
//	                    └▶ reanswer† ─▶ summarise ─▶ critique ─▶ consolidate ─┬▶ gate ─▶ confirm ─▶ holdout ─▶ answer
//	                       (a mission has enough tickets                      └▶ answer (no plan, a refused one,
//	                        that teach something)                                or one that needs no comparison)
//
//	* of each mission with a holdout: how good its guidance is at the start
//	† if the reflection begins with another guidance of the front than the present one
//
// A stage of answers may be followed by one of the same tickets, which takes its place: see
// Stage.Restarts.
//
// Any stage of a reflection may be the last of it: if it fails, or a comparison is lost,
// the guidance stays, and the run goes on with the next reflection or the next batch.
const (
	Answering     StageKind = "answer"      // the tickets of a global batch
	Reanswering   StageKind = "reanswer"    // the tickets of a reflection under the guidance that it begins with
	Summarising   StageKind = "summarise"   // what each ticket of a reflection teaches
	Critiquing    StageKind = "critique"    // which operations would have helped: one item a candidate
	Consolidating StageKind = "consolidate" // one plan for each candidate
	Gating        StageKind = "gate"        // the same tickets under the guidance and under each candidate
	Confirming    StageKind = "confirm"     // other tickets under the guidance and under the best candidate
	Measuring     StageKind = "holdout"     // tickets that decide nothing, under a guidance
	Ending        StageKind = "end"         // nothing: the stage has no object beside it
)

// Role returns the role of the stage's items.
func (k StageKind) Role() string {
	switch k {
	case Summarising, Critiquing, Consolidating:
		return RoleReflect
	case Reanswering, Gating, Confirming, Measuring:
		return RoleCompare
	}
	return record.RoleAnswer
}

// The roles of a rollout beside the answer.
const (
	RoleReflect = "reflect"
	RoleCompare = "compare"
)

// Stage is what an appended object of a rollout is. It is an object beside it, and written
// first: a function of the manifest and of the results before it.
type Stage struct {
	Schema int       `json:"schema"`
	Input  int       `json:"input"` // the number of the appended object
	Kind   StageKind `json:"kind"`
	Items  int       `json:"items"` // of the object
	Epoch  int       `json:"epoch"`
	Batch  int       `json:"batch"` // of answers, from 0
	// From and To are the tickets of the batch: positions in the order of the epoch.
	From    int `json:"from"`
	To      int `json:"to"`
	Members int `json:"members"` // of each ticket
	// Taught is how many tickets of the global batch teach something, of the stages before
	// this one. Replaced is how many were taken in the place of others, with those of this
	// stage if it Replaces some.
	Taught   int  `json:"taught,omitempty"`
	Replaced int  `json:"replaced,omitempty"`
	Replaces bool `json:"replaces,omitempty"`
	// Restarts is how often the tickets of this stage of answers were asked before, and
	// interrupted; see config.InterruptRestart. Restarted counts all such stages.
	Restarts  int `json:"restarts,omitempty"`
	Restarted int `json:"restarted,omitempty"`
	Book
	// Guidance is what the tickets of each mission see: its step.
	Guidance map[string]int `json:"guidance"`
	// Totals are what is known of the batches before this one, and Steps the sums of the
	// scores under each step of a mission's guidance.
	Totals Totals                `json:"totals"`
	Steps  map[string][]StepSum  `json:"steps,omitempty"`
	Used   map[string]entryUsage `json:"used,omitempty"` // of the entries of the present guidance, by mission
	// Pending are the tickets of each mission that teach something and that no reflection
	// has looked at yet.
	Pending map[string]pending `json:"pending,omitempty"`
	// Fronts are the newest fronts by mission: see front.go.
	Fronts map[string]FrontRef `json:"fronts,omitempty"`
	// Learnt says that a guidance or a front changed in this epoch.
	Learnt      bool `json:"learnt,omitempty"`
	Failed      int  `json:"failed,omitempty"` // reflections in a row
	Reflections int  `json:"reflections,omitempty"`
	Accepted    int  `json:"accepted,omitempty"` // of the reflections
	// Reflection is under way in the stages of one; nil in others.
	Reflection *Reflection `json:"reflection,omitempty"`
	// Mission is what is measured at the start, in a stage of Measuring without Reflection.
	Mission string `json:"mission,omitempty"`
	// Over is the reflection that ended with the results before this stage; nil if none did.
	Over *Record `json:"over,omitempty"`
	// Start has how each mission did on its holdout under step 0.
	Start map[string]Measure `json:"start,omitempty"`
	// Stopped says why the run ends before its last epoch; "" if it does not.
	Stopped string `json:"stopped,omitempty"`
}

// StepSum sums up the scores of answers under a step.
type StepSum struct {
	Scored int     `json:"scored"`
	Score  float64 `json:"score"`
}

// maxStage bounds a stage, in bytes.
const maxStage = 64 << 20

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

// save writes the stage, unless it exists, and returns the one that stands: the first.
func (s Stage) save(ctx context.Context, blobs blob.Store, run identity.RunID) (Stage, error) {
	b := record.Encode(s)
	if len(b) > maxStage {
		return s, fault.New(fault.Invalid, "the stage %d of run %s has %d bytes, at most %d are allowed: lower "+
			"rollout_batch_size or reflection.batch_size", s.Input, run, len(b), maxStage)
	}
	if err := create(ctx, blobs, stageKey(run, s.Input), b); err != nil {
		return s, err
	}
	return ReadStage(ctx, blobs, run, s.Input)
}

// Batches returns how many batches an epoch has.
func (s Stage) Batches(c config.Run) int { return ceil(s.Tickets, c.RunnerOf().RolloutBatchSize) }

// start returns the stage before the first of a run with that book.
func start(m record.Manifest, b Book) Stage {
	s := Stage{Schema: record.Schema, Input: len(m.Inputs) - 1, Batch: -1, Members: m.Config.Members(), Book: b,
		Guidance: map[string]int{}}
	for _, mission := range m.Config.Missions {
		s.Guidance[mission.Name] = 0
	}
	return s
}

// after returns the stage behind s, of that kind.
func (s Stage) after(k StageKind, items int) Stage {
	s.Input, s.Kind, s.Items, s.Over, s.Mission, s.Restarts = s.Input+1, k, items, nil, "", 0
	return s
}

// maxRestarts bounds how often the tickets of a stage are asked anew: on machines that are
// taken away all the time, a batch would otherwise never end.
const maxRestarts = 3

// restart returns the stage that asks the tickets of s, a stage of answers, anew.
func (s Stage) restart() Stage {
	next := s.after(Answering, s.Items)
	next.Restarts, next.Restarted = s.Restarts+1, s.Restarted+1
	return next
}

// replacements returns the stage of answers that takes the place of tickets of the batch
// that teach nothing, from the rest of the epoch. more is false if none is needed, the
// batch may take no more, or the epoch is over: then the run goes on with what it has.
func (s Stage) replacements(c config.Run) (next Stage, more bool) {
	r := c.RunnerOf()
	count := min(r.RolloutBatchSize-s.Taught, r.MaxReplacements-s.Replaced, s.Tickets-s.To)
	if count <= 0 {
		return s, false
	}
	next = s.after(Answering, count*s.Members)
	next.From, next.To = s.To, s.To+count
	next.Replaced, next.Replaces = s.Replaced+count, true
	return next, true
}

// nextBatch returns the stage of the next batch of answers: in the next epoch, if this one
// is over. more is false if there is none.
func (s Stage) nextBatch(c config.Run) (next Stage, more bool) {
	next = s.after(Answering, 0)
	next.Reflection, next.Taught, next.Replaced, next.Replaces = nil, 0, 0, false
	if next.From = s.To; s.To >= s.Tickets {
		if s.Epoch+1 >= c.RolloutOf().Epochs {
			return next, false
		}
		if s.Tickets == 0 {
			return next, false
		}
		if !s.Learnt {
			next.Stopped = "converged: no guidance changed in an epoch"
			return next, false
		}
		next.Epoch, next.From, next.Learnt = s.Epoch+1, 0, false
	}
	next.Batch, next.To = s.Batch+1, min(s.Tickets, next.From+c.RunnerOf().RolloutBatchSize)
	next.Items = (next.To - next.From) * s.Members
	return next, next.From < next.To
}

// Progress returns how far a run has come whose newest stage it is.
func (s Stage) Progress(c config.Run) record.Rollout {
	out := s.Totals.summary()
	epochs := c.RolloutOf().Epochs
	out.Stage, out.Batch, out.Batches, out.Refused = string(s.Kind), s.Batch+1, s.Batches(c)*epochs, s.Refused
	out.AllTickets, out.AllItems = s.Tickets*epochs, s.Tickets*epochs*s.Members
	out.Epoch, out.Epochs = s.Epoch+1, epochs
	out.Guidance, out.Reflections, out.Accepted = s.Guidance, s.Reflections, s.Accepted
	out.Fronts = s.frontSizes()
	return out
}

// frontSizes returns how many guidances each front has; nil without fronts.
func (s Stage) frontSizes() map[string]int {
	if len(s.Fronts) == 0 {
		return nil
	}
	out := make(map[string]int, len(s.Fronts))
	for mission, ref := range s.Fronts {
		out[mission] = ref.Members
	}
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
	// Labelled is how many tickets with a label were answered, and Right how many of these
	// have it as their verdict: one whose answers say no verdict is not right.
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
	out.Agreement, out.Accuracy, out.Score = t.means()
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

// means returns the means of the totals; nil where there is nothing to divide by.
func (t Totals) means() (agreement, accuracy, score *float64) {
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
