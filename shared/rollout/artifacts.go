package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
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
	ReflectionFile   = "reflection.jsonl"    // a row for each reflection
	CandidatesFile   = "candidates.jsonl"    // a row for each plan that a reflection made
	DistillFile      = "distill.jsonl"       // a chat for each ticket whose selected answer is worth learning
	PreferencesFile  = "preferences.jsonl"   // a pair for each ticket with a better and a worse answer
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
	// Replaced is how many of the tickets took the place of others that teach nothing.
	Replaced int `json:"replaced,omitempty"`
	Totals
	MeanAgreement *float64 `json:"agreement"`
	Accuracy      *float64 `json:"accuracy"` // of the selections that have a label
	MeanScore     *float64 `json:"score"`

	from int // the first batch
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
	p := publisher{Ended: e, reader: reader, files: map[string]*object{}, measured: map[string]map[int]Measure{},
		replaced: map[int]int{}}
	names := []string{TrajectoriesFile, FailuresFile, SelectionsFile, ReviewFile, MetricsFile, DistillFile,
		PreferencesFile, AttemptsFile}
	if e.Manifest.Config.Reflection != nil {
		names = append(names, ReflectionFile, CandidatesFile)
	}
	for _, name := range names {
		p.files[name] = open(ctx, e.Blobs, record.OutputKey(e.Manifest.Run, name))
	}
	err = p.write(ctx)
	for _, name := range sortedKeys(p.files) {
		err = errors.Join(err, p.files[name].finish(err))
	}
	if err == nil {
		err = p.publishGuidance(ctx)
	}
	p.out.Refused = p.refused
	return p.out, err
}

// publisher is a call of Publish.
type publisher struct {
	Ended
	reader *Reader
	files  map[string]*object
	epoch  metrics
	all    Totals
	last   Stage // the newest one
	// measured has how each mission's guidance did on its holdout, by step.
	measured map[string]map[int]Measure
	replaced map[int]int // tickets that took the place of others, by epoch
	out      record.Rollout
	refused  int // lines that are no tickets
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
	if err := p.reflections(ctx); err != nil {
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
	if err := p.epochRow(); err != nil {
		return err
	}
	p.sum()
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

// epochRow appends the row of the epoch.
func (p *publisher) epochRow() error {
	p.epoch.Replaced = p.replaced[p.epoch.Epoch]
	p.epoch.MeanAgreement, p.epoch.Accuracy, p.epoch.MeanScore = p.epoch.means()
	return p.row(MetricsFile, p.epoch)
}

// candidateRow is a row of CandidatesFile.
type candidateRow struct {
	Reflection int    `json:"reflection"`
	Mission    string `json:"mission"`
	Step       int    `json:"step"` // that it was made from
	Number     int    `json:"candidate"`
	Accepted   bool   `json:"accepted"`
	Candidate
}

// reflections appends the rows of the run's reflections, and notes its last stage.
func (p *publisher) reflections(ctx context.Context) error {
	for s, err := range Stages(ctx, p.Blobs, p.Manifest) {
		if err != nil {
			return err
		}
		p.last = s
		if s.Kind == Answering && s.Replaces {
			p.replaced[s.Epoch] += s.To - s.From
		}
		if s.Over == nil {
			continue
		}
		if h := s.Over.Holdout; h != nil {
			if p.measured[s.Over.Mission] == nil {
				p.measured[s.Over.Mission] = map[int]Measure{}
			}
			p.measured[s.Over.Mission][s.Over.NewStep] = *h
		}
		if err := p.row(ReflectionFile, s.Over); err != nil {
			return err
		}
		for n, c := range s.Over.Candidates {
			won := s.Over.Result == ResultAccepted && n == s.Over.Best
			if err := p.row(CandidatesFile, candidateRow{s.Over.Number, s.Over.Mission, s.Over.Step, n, won, c}); err != nil {
				return err
			}
		}
	}
	return nil
}

// sum notes what the run came to.
func (p *publisher) sum() {
	batches := p.out.Batches
	p.out = p.all.summary()
	p.out.Batches, p.out.Epochs, p.out.Stopped = batches, p.last.Epoch+1, p.last.Stopped
	p.out.Reflections, p.out.Accepted, p.out.Guidance = p.last.Reflections, p.last.Accepted, p.last.Guidance
	if p.Manifest.Config.Reflection == nil {
		return
	}
	p.out.Missions = map[string]record.Mission{}
	for _, m := range p.Manifest.Config.Missions {
		p.out.Missions[m.Name] = p.last.mission(m.Name, p.measured[m.Name])
	}
}

// publishGuidance copies the steps of each mission's guidance to the files of the run, and
// the one that is promoted: the best of them.
func (p *publisher) publishGuidance(ctx context.Context) error {
	m := p.Manifest
	for _, mission := range m.Config.Missions {
		newest, known := p.last.Guidance[mission.Name]
		if !known { // the run ended before its first batch
			continue
		}
		best := p.last.promoted(mission.Name)
		for step := range newest + 1 {
			g, err := readGuidance(ctx, p.Blobs, m.Run, mission.Name, step)
			if err != nil {
				return err
			}
			if err := create(ctx, p.Blobs, GuidanceKey(m.Run, mission.Name, step), g.Encode()); err != nil {
				return err
			}
			if step == best {
				if err := create(ctx, p.Blobs, PromotedKey(m.Run, mission.Name), g.Encode()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// promoted returns the step of a mission's guidance that is best. With a gate each step
// has twice been shown to be better than the one before; without, it is the one whose
// answers have the highest mean score, or the newest if there are no scores.
func (s Stage) promoted(mission string) int {
	best := s.Guidance[mission]
	if s.Pools[mission].Gate.Len() > 0 {
		return best
	}
	highest := math.Inf(-1)
	for step, sum := range s.Steps[mission] {
		if mean := ratio(sum.Score, float64(sum.Scored)); mean != nil && *mean > highest {
			best, highest = step, *mean
		}
	}
	return best
}

// mission returns what a run came to in a mission, whose promoted step was measured on its
// holdout if measured has it.
func (s Stage) mission(name string, measured map[int]Measure) record.Mission {
	out := record.Mission{Steps: s.Guidance[name], Promoted: s.promoted(name), Gated: s.Pools[name].Gate.Len() > 0}
	for _, sum := range s.Steps[name] {
		out.Scores = append(out.Scores, ratio(sum.Score, float64(sum.Scored)))
	}
	if m, ok := s.Start[name]; ok && m.Tickets > 0 {
		out.HoldoutTickets, out.HoldoutAtStart = m.Tickets, &m.Score
		if out.Promoted == 0 {
			out.Holdout = &m.Score
		}
	}
	if m, ok := measured[out.Promoted]; ok && m.Tickets > 0 {
		out.Holdout = &m.Score
	}
	return out
}

// GuidanceKey returns the key of a step of a mission's guidance among the files of a run.
func GuidanceKey(run identity.RunID, mission string, step int) string {
	return record.OutputKey(run, fmt.Sprintf("guidance/%s/step-%d.json", mission, step))
}

// PromotedKey returns the key of the promoted guidance of a mission.
func PromotedKey(run identity.RunID, mission string) string {
	return record.OutputKey(run, "guidance/"+mission+"/guidance.json")
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
	first := g.members[0]
	if first.Epoch != p.epoch.Epoch {
		if err := p.epochRow(); err != nil {
			return err
		}
		p.epoch = metrics{Epoch: first.Epoch, from: first.Batch}
	}
	p.epoch.Add(g)
	p.all.Add(g)
	p.epoch.Batches = first.Batch + 1 - p.epoch.from
	p.out.Batches = first.Batch + 1
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
	if err := p.distill(g); err != nil {
		return err
	}
	if err := p.row(SelectionsFile, s); err != nil || s.Review == selection.NoReview {
		return err
	}
	return p.row(ReviewFile, s)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
