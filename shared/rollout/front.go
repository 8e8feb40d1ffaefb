package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/core/pareto"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// With reflection.pareto, a mission whose candidates are compared has a front: guidances of
// which each is the best for some tickets of the gate. A reflection begins with one of them,
// drawn by the number of these tickets. What is used and promoted is decided as without a
// front: a candidate must win against the present guidance, twice.
//
//	front ─draw─▶ the present guidance ─────────────────────────▶ summarise ─▶ … ─▶ gate ─▶ front
//	          └─▶ another one ─▶ reanswer: the tickets under it ─┘
//
// All comparisons on the gate then take the same tickets, so that scores of one reflection
// can be compared with those of another.

// FrontMember is a guidance on a front, as FrontsFile has it.
type FrontMember struct {
	// Name is "step 2", or "r3.1" for candidate 1 of reflection 3, which is no step.
	Name string `json:"name"`
	// Parent is the name of the guidance that it was made from; "" of step 0, and of a step
	// that was not on the front when it became the guidance.
	Parent string `json:"parent,omitempty"`
	Best   int    `json:"best"` // tickets on which no guidance of the front is better
	// Score is the mean over the tickets that have a score; null without one.
	Score *float64 `json:"score"`
}

// member is a guidance on a front, with its scores.
type member struct {
	FrontMember
	Scores   []*float64        `json:"scores"` // by ticket: the mean of the answers; null without a score
	Guidance guidance.Guidance `json:"guidance"`
}

// front is an object beside the stages: what a mission's front is from a stage on.
type front struct {
	Schema  int      `json:"schema"`
	Members []member `json:"members"`
}

// FrontRef names the newest front of a mission.
type FrontRef struct {
	Input   int `json:"input"` // the stage that it was made with
	Members int `json:"members"`
}

// Parent is a guidance of the front that a reflection begins with.
type Parent struct {
	Name string `json:"name"`
	// Guidance has the number of the present step, which it would replace.
	Guidance guidance.Guidance `json:"guidance"`
	// Tickets is how many tickets were asked again under it, once they are.
	Tickets int        `json:"tickets,omitempty"`
	Used    entryUsage `json:"used,omitempty"` // by their answers
}

func stepName(step int) string { return fmt.Sprintf("step %d", step) }

func candidateName(reflection, candidate int) string {
	return fmt.Sprintf("r%d.%d", reflection, candidate)
}

func frontKey(run identity.RunID, mission string, input int) string {
	return key(run, fmt.Sprintf("front/%s/%06d.json", mission, input))
}

// readFront returns the front of a mission; it is empty before the first comparison.
func (g Growing) readFront(ctx context.Context, s Stage, mission string) (f front, err error) {
	ref, ok := s.Fronts[mission]
	if !ok {
		return f, nil
	}
	return readFront(ctx, g.Blobs, g.Manifest.Run, mission, ref)
}

func readFront(ctx context.Context, blobs blob.Store, run identity.RunID, mission string, ref FrontRef) (
	f front, err error) {
	at := frontKey(run, mission, ref.Input)
	b, err := input.ReadObject(ctx, blobs, at, maxStage)
	if err == nil {
		err = fault.WithKind(fault.Corrupt, json.Unmarshal(b, &f), "read %s", at)
	}
	return f, err
}

// saveFront writes the front of the mission under reflection, which counts from the stage
// behind s on. One that exists with other bytes is Corrupt: see saveGuidance.
func (g Growing) saveFront(ctx context.Context, s Stage, f front) error {
	mission := s.Reflection.Mission
	at, b := frontKey(g.Manifest.Run, mission, s.Input+1), encode(f)
	_, err := g.Blobs.Put(ctx, at, bytes.NewReader(b), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		have, readErr := input.ReadObject(ctx, g.Blobs, at, maxStage)
		if err = readErr; err == nil && !bytes.Equal(have, b) {
			err = fault.New(fault.Corrupt, "the front %s exists with another content", at)
		}
	}
	s.Fronts[mission] = FrontRef{s.Input + 1, len(f.Members)}
	return err
}

// hasFront reports whether a mission has a front.
func (g Growing) hasFront(s Stage, mission string) bool {
	return g.Manifest.Config.Reflection.Pareto > 0 && s.Pools[mission].Gate.Len() > 0
}

// parent draws the guidance that the next reflection of a mission begins with; nil is the
// present one.
func (g Growing) parent(ctx context.Context, s Stage, mission string) (*Parent, error) {
	f, err := g.readFront(ctx, s, mission)
	if err != nil || len(f.Members) == 0 {
		return nil, err
	}
	var members []pareto.Kept
	for n, m := range f.Members {
		members = append(members, pareto.Kept{Member: n, Best: m.Best})
	}
	drawn := f.Members[pareto.Draw(members, seedOfStage(g.Manifest.Config, s.Reflections, Reanswering, 0)).Member]
	step := s.Guidance[mission]
	if drawn.Name == stepName(step) {
		return nil, nil
	}
	p := &Parent{Name: drawn.Name, Guidance: drawn.Guidance}
	p.Guidance.Step = step
	return p, nil
}

// basis returns the guidance that a reflection improves, with the counts of its entries.
func (g Growing) basis(ctx context.Context, s Stage) (guidance.Guidance, error) {
	r := s.Reflection
	if p := r.Parent; p != nil {
		return p.Guidance.Count(p.Used), nil
	}
	old, err := readGuidance(ctx, g.Blobs, g.Manifest.Run, r.Mission, r.Step)
	return old.Count(s.Used[r.Mission]), err
}

// basisName returns the name of the guidance that the reflection improves.
func (r Reflection) basisName() string {
	if r.Parent != nil {
		return r.Parent.Name
	}
	return stepName(r.Step)
}

// reanswered takes in what the tickets of a reflection were answered under the guidance
// that it begins with: from here on its cases are these answers.
func (g Growing) reanswered(ctx context.Context, s Stage) (Stage, error) {
	r := s.Reflection
	p := *r.Parent
	p.Tickets, p.Used = len(r.Cases), entryUsage{}
	var cases []Case
	at := 0
	err := g.groups(s, func(group Group) error {
		c := r.Cases[at]
		at++
		p.Used.count(group)
		if why, teaches := reasons[group.selection.Teaches]; teaches {
			c.Why, c.Answers = why, answersOf(group)
			cases = append(cases, c)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	r.Parent = &p
	if len(cases) == 0 {
		return g.fail(ctx, s, ResultNoChange, "under "+p.Name+" no ticket teaches anything")
	}
	r.Cases = cases
	return s.after(Summarising, len(cases)), nil
}

// known returns the texts that a candidate must differ from: of the present guidance, and
// of the front.
func (g Growing) known(ctx context.Context, s Stage, present guidance.Guidance) (texts []string, err error) {
	f, err := g.readFront(ctx, s, s.Reflection.Mission)
	for _, m := range f.Members {
		texts = append(texts, m.Guidance.Text())
	}
	return append(texts, present.Text()), err
}

// join makes the front of a mission anew after a comparison on its gate: of what it had,
// with the present guidance's new scores, and of the candidates that were compared. scores
// has those of the present guidance and of each candidate.
func (g Growing) join(ctx context.Context, s *Stage, candidates []int, scores [][]scored) error {
	r := s.Reflection
	f, err := g.readFront(ctx, *s, r.Mission)
	if err != nil {
		return err
	}
	present, err := readGuidance(ctx, g.Blobs, g.Manifest.Run, r.Mission, r.Step)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(f.Members, func(m member) bool { return m.Name == stepName(r.Step) })
	if at < 0 {
		at = len(f.Members)
		f.Members = append(f.Members, member{FrontMember: FrontMember{Name: stepName(r.Step)}, Guidance: present})
	}
	f.Members[at].Scores = meansOf(scores[0])
	before := len(f.Members)
	for n, candidate := range candidates {
		f.Members = append(f.Members, member{FrontMember{Name: candidateName(r.Number, candidate), Parent: r.basisName()},
			meansOf(scores[1+n]), *r.Candidates[candidate].Guidance})
	}
	var joined bool
	f.Members, joined = reduce(f.Members, g.Manifest.Config.Reflection.Pareto, before)
	s.Learnt = s.Learnt || joined
	f.Schema = record.Schema
	return g.saveFront(ctx, *s, f)
}

// reduce returns the members that stay, and whether one from index added on is among them.
func reduce(members []member, limit, added int) (left []member, joined bool) {
	scores := make([][]float64, len(members))
	for n, m := range members {
		for _, s := range m.Scores {
			if s == nil {
				scores[n] = append(scores[n], math.NaN())
			} else {
				scores[n] = append(scores[n], *s)
			}
		}
	}
	for _, k := range pareto.Reduce(scores, limit) {
		m := members[k.Member]
		m.Best, m.Score = k.Best, nil
		sum, n := 0.0, 0
		for _, s := range m.Scores {
			if s != nil {
				sum, n = sum+*s, n+1
			}
		}
		m.Score = ratio(sum, float64(n))
		left, joined = append(left, m), joined || k.Member >= added
	}
	return left, joined
}

// meansOf returns the mean scores of tickets; nil for one without a score.
func meansOf(tickets []scored) []*float64 {
	out := make([]*float64, len(tickets))
	for n, t := range tickets {
		if mean, ok := t.mean(); ok {
			out[n] = &mean
		}
	}
	return out
}

// promote gives the candidate that has become the guidance its name on the front: that of
// its step.
func (g Growing) promote(ctx context.Context, s *Stage, step int) error {
	r := s.Reflection
	f, err := g.readFront(ctx, *s, r.Mission)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(f.Members, func(m member) bool { return m.Name == candidateName(r.Number, r.Best) })
	if at < 0 { // others are as good on each ticket
		return nil
	}
	f.Members[at].Name = stepName(step)
	return g.saveFront(ctx, *s, f)
}
