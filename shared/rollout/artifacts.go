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
		replaced: map[int]int{}, fronts: map[string]FrontRef{}}
	names := []string{TrajectoriesFile, FailuresFile, SelectionsFile, ReviewFile, MetricsFile, DistillFile,
		PreferencesFile, AttemptsFile}
	if e.Manifest.Config.Reflection != nil {
		names = append(names, ReflectionFile, CandidatesFile)
		if e.Manifest.Config.Reflection.Pareto > 0 {
			names = append(names, FrontsFile)
		}
	} else {
		p.audit = newAuditor(e.Manifest)
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
	if err == nil && p.audit != nil {
		err = p.publishAudit(ctx)
	}
	p.out.Refused = p.refused
	return p.out, err
}

// publisher is a call of Publish.
type publisher struct {
	Ended
	reader *Reader
	files  map[string]*object
	epoch  Metrics
	all    Totals
	last   Stage // the newest one
	// measured has how each mission's guidance did on its holdout, by step.
	measured map[string]map[int]Measure
	handedOn map[string]askedStep // by mission: whose answers trainings get
	fronts   map[string]FrontRef  // by mission: the newest that has a row
	replaced map[int]int          // tickets that took the place of others, by epoch
	out      record.Rollout
	refused  int          // invalid lines
	audit    *auditor     // nil in a run that reflects
	encoded  bytes.Buffer // the last row
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
	if err := p.enter(g.members[0].Epoch, g.members[0].Batch); err != nil {
		return err
	}
	if members[0].Superseded {
		return p.supersededRows(g)
	}
	return p.groupRows(g)
}

// enter begins the epoch of a ticket, if it is another one than that of the ticket before.
func (p *publisher) enter(epoch, batch int) error {
	if epoch == p.epoch.Epoch {
		return nil
	}
	err := p.epochRow()
	p.epoch = Metrics{Epoch: epoch, from: batch}
	return err
}

// Restarted is the cause of an answer that does not count because its batch was asked anew.
const Restarted = "restarted"

// supersededRows appends the rows of a ticket that was asked anew.
func (p *publisher) supersededRows(g Group) error {
	of := aboutOf(g)
	for _, m := range g.members {
		p.epoch.fail(Restarted)
		p.all.fail(Restarted)
		d := draw{m.id, of, m.Decode, m.Sample, m.Seed}
		if err := p.row(FailuresFile, Failure{d, Restarted, m.message, nil, m.text, m.usage}); err != nil {
			return err
		}
	}
	return nil
}

// epochRow appends the row of the epoch.
func (p *publisher) epochRow() error {
	p.epoch.Replaced = p.replaced[p.epoch.Epoch]
	p.epoch.MeanAgreement, p.epoch.Accuracy, p.epoch.MeanScore = p.epoch.means()
	return p.row(MetricsFile, p.epoch)
}

// reflections appends the rows of the run's reflections, and notes its last stage.
func (p *publisher) reflections(ctx context.Context) error {
	end, err := lastStage(ctx, p.Blobs, p.Manifest)
	if err != nil {
		return err
	}
	var batches askedSteps
	for s, err := range Stages(ctx, p.Blobs, p.Manifest) {
		if err != nil {
			return err
		}
		if s.Input > end {
			break
		}
		p.last = s
		if s.Kind == Answering {
			batches.add(s)
		}
		if s.Kind == Answering && s.Replaces && s.Restarts == 0 {
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
		if err := p.frontRow(ctx, s); err != nil {
			return err
		}
		for n, c := range s.Over.Candidates {
			won := s.Over.Result == ResultAccepted && n == s.Over.Best
			if err := p.row(CandidatesFile, candidateRow{s.Over.Number, s.Over.Mission, s.Over.Step, n, won, c}); err != nil {
				return err
			}
		}
	}
	p.handedOn = batches.handedOn(p.last)
	return nil
}

// frontRow appends the row of a front that changed with the reflection that is over in s.
func (p *publisher) frontRow(ctx context.Context, s Stage) error {
	mission := s.Over.Mission
	ref, known := s.Fronts[mission]
	if !known || ref == p.fronts[mission] {
		return nil
	}
	p.fronts[mission] = ref
	f, err := readFront(ctx, p.Blobs, p.Manifest.Run, mission, ref)
	if err != nil {
		return err
	}
	row := FrontRow{Reflection: s.Over.Number, Mission: mission}
	for _, m := range f.Members {
		row.Members = append(row.Members, m.FrontMember)
	}
	return p.row(FrontsFile, row)
}

// sum notes what the run came to.
func (p *publisher) sum() {
	batches := p.out.Batches
	p.out = p.all.summary()
	p.out.Batches, p.out.Epochs, p.out.Stopped = batches, p.last.Epoch+1, p.last.Stopped
	p.out.Reflections, p.out.Accepted, p.out.Guidance = p.last.Reflections, p.last.Accepted, p.last.Guidance
	p.out.Fronts = p.last.frontSizes()
	if p.Manifest.Config.Reflection == nil {
		return
	}
	p.out.Missions = map[string]record.Mission{}
	for _, m := range p.Manifest.Config.Missions {
		p.out.Missions[m.Name] = p.last.mission(m.Name, p.measured[m.Name])
	}
}

// row appends a row to a file.
func (p *publisher) row(file string, v any) error {
	p.encoded.Reset()
	e := json.NewEncoder(&p.encoded)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fault.WithKind(fault.Internal, err, "encode a row of %s", file)
	}
	_, err := p.files[file].Write(p.encoded.Bytes())
	return err
}

// refusedLines copies what is known of the invalid lines.
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
	p.epoch.Add(g)
	p.all.Add(g)
	if p.audit != nil {
		p.audit.add(g)
	}
	p.epoch.Batches = first.Batch + 1 - p.epoch.from
	p.out.Batches = first.Batch + 1
	of := aboutOf(g)
	for n, m := range g.members {
		d := draw{m.id, of, m.Decode, m.Sample, m.Seed}
		if cause := g.parsed[n].Cause; cause != "" {
			if err := p.row(FailuresFile, Failure{d, cause, m.message, m.score, m.text, m.usage}); err != nil {
				return err
			}
			continue
		}
		t := Trajectory{draw: d, Verdict: m.verdict, Selected: n == g.selection.Member, Score: m.score, Scores: m.scores,
			Text: m.text, Finish: m.finish, Usage: m.usage, Response: m.response}
		if a, ok := g.stats.Advantage(g.parsed[n]); ok {
			t.Advantage = &a
		}
		if err := p.row(TrajectoriesFile, t); err != nil {
			return err
		}
	}
	s := Selected{about: of, Agreement: g.selection.Agreement, Votes: g.selection.Votes,
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

// aboutOf names the ticket of a group.
func aboutOf(g Group) about {
	first := g.members[0]
	of := about{Group: g.ticket.Group, Mission: g.ticket.Mission, Epoch: first.Epoch, Batch: first.Batch, Step: first.Step}
	if g.ticket.Label != "" {
		of.Label = &g.ticket.Label
	}
	return of
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
