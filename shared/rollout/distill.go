package rollout

import (
	"encoding/json"
	"strings"

	"rollout/shared/core/selection"
	"rollout/shared/fault"
)

// chat is a row of DistillFile, as a training on chats takes it.
type chat struct {
	Messages []json.RawMessage `json:"messages"`
	ID       string            `json:"id"` // of the answer's row
}

// preference is a row of PreferencesFile, as a training of a reward model takes it.
type preference struct {
	Prompt   string `json:"prompt"`
	Chosen   string `json:"chosen"`
	Rejected string `json:"rejected"`
	ID       string `json:"id"` // of the chosen answer's row
	Against  string `json:"against"`
}

// distill appends what a training can learn from a ticket: the selected answer, unless a
// person shall look at it or it contradicts the label, and a pair of its best and its
// worst answer. It takes the answers under one step alone, since what was answered under
// an earlier one is worse: see handedOn.
func (p *publisher) distill(g Group) error {
	first := g.members[0]
	if at, asked := p.handedOn[g.ticket.Mission]; !asked || first.Epoch != at.epoch || first.Step != at.step {
		return nil
	}
	s := g.selection
	if s.Member >= 0 && s.Review == selection.NoReview && (s.LabelMatch == nil || *s.LabelMatch) {
		m := g.members[s.Member]
		row := chat{ID: m.id}
		if err := json.Unmarshal(m.messages, &row.Messages); err != nil {
			return fault.WithKind(fault.Corrupt, err, "read the messages of %s", m.id)
		}
		row.Messages = append(row.Messages, encode(message{"assistant", m.text}))
		if err := p.row(DistillFile, row); err != nil {
			return err
		}
	}
	best, worst := -1, -1
	for n, m := range g.members {
		if m.score == nil || m.text == "" {
			continue
		}
		if best < 0 || *m.score > *g.members[best].score {
			best = n
		}
		if worst < 0 || *m.score < *g.members[worst].score {
			worst = n
		}
	}
	if best < 0 || *g.members[best].score == *g.members[worst].score || g.members[best].text == g.members[worst].text {
		return nil
	}
	chosen, rejected := g.members[best], g.members[worst]
	prompt, err := promptOf(chosen.messages)
	if err != nil {
		return fault.Wrap(err, "read the messages of %s", chosen.id)
	}
	return p.row(PreferencesFile, preference{prompt, chosen.text, rejected.text, chosen.id, rejected.id})
}

// askedStep is a step of a mission's guidance under which an epoch asks.
type askedStep struct{ epoch, step int }

// askedSteps are the steps of all missions under which the batches of the newest epoch
// ask, in the order of the batches: a step never falls.
type askedSteps struct {
	epoch int
	steps []map[string]int
}

func (a *askedSteps) add(s Stage) {
	if s.Epoch != a.epoch {
		a.epoch, a.steps = s.Epoch, nil
	}
	a.steps = append(a.steps, s.Guidance)
}

// handedOn returns for each mission the step whose answers trainings get: the newest one
// up to the promoted step or, if all are newer, the first. last is the run's last stage.
func (a *askedSteps) handedOn(last Stage) map[string]askedStep {
	out := map[string]askedStep{}
	for mission := range last.Guidance {
		promoted := last.promoted(mission)
		for n, steps := range a.steps {
			if step := steps[mission]; n == 0 || step <= promoted {
				out[mission] = askedStep{a.epoch, step}
			}
		}
	}
	return out
}

// message is a turn of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// promptOf returns the texts of messages, with an empty line behind each.
func promptOf(messages json.RawMessage) (string, error) {
	var all []struct{ Content json.RawMessage }
	if err := json.Unmarshal(messages, &all); err != nil {
		return "", fault.WithKind(fault.Corrupt, err, "decode them")
	}
	var b strings.Builder
	for _, m := range all {
		var text string
		if json.Unmarshal(m.Content, &text) != nil { // parts, which stay as they are
			text = string(m.Content)
		}
		b.WriteString(text + "\n\n")
	}
	return b.String(), nil
}
