package clerk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/clerk"
	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// deskTickets returns n tickets of a mission, of which the first labelled ones say their label.
func deskTickets(mission string, n, labelled int) string {
	var b strings.Builder
	for i := range n {
		content, label := clerk.Ticket(i)
		ticket := map[string]string{"group_id": fmt.Sprintf("%s-%d", mission, i), "mission": mission, "content": content}
		if i < labelled {
			ticket["label"] = label
		}
		b.Write(append(record.Encode(ticket), '\n'))
	}
	return b.String()
}

// withMissions returns the config with these missions, which all begin alike.
func withMissions(c config.Run, names ...string) config.Run {
	first := c.Missions[0]
	c.Missions = nil
	for _, name := range names {
		first.Name = name
		c.Missions = append(c.Missions, first)
	}
	return c
}

// groupsIn returns the groups of a stage's lines.
func (b *bench) groupsIn(number int) (groups []string) {
	for _, o := range b.outcomes[number] {
		groups = append(groups, lineOf(b, o.Line).Ticket.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// TestMissionsLearnApart runs two missions with tickets of their own. One of them has no
// labels: nothing is compared there, and its newest guidance is promoted.
func TestMissionsLearnApart(t *testing.T) {
	t.Parallel()
	c, _ := small(t)
	c = withMissions(c, "lamps", "silent")
	b := newBench(t, c, deskTickets("lamps", 150, 150)+deskTickets("silent", 60, 0), clerks(t))
	sum := b.run()
	stages := b.stages()
	pools := stages[0].Pools
	if lamps, silent := pools["lamps"], pools["silent"]; lamps.Gate.Len() < 20 || lamps.Holdout.Len() == 0 ||
		silent.Gate.Len()+silent.Holdout.Len() > 0 {
		t.Errorf("the pools are %+v", pools)
	}
	reflected := map[string]int{}
	for _, r := range b.reflections() {
		reflected[r.Mission]++
		if gated := r.Mission == "lamps"; r.Gated != gated {
			t.Errorf("reflection %d of %s is gated: %v", r.Number, r.Mission, r.Gated)
		}
		if r.Mission == "silent" && r.Result == rollout.ResultAccepted && r.Holdout != nil {
			t.Errorf("reflection %d has a holdout without labels", r.Number)
		}
		prefix := r.Mission + "-"
		for _, of := range r.Cases {
			if !strings.HasPrefix(of.Group, prefix) {
				t.Errorf("reflection %d of %s looks at %s", r.Number, r.Mission, of.Group)
			}
		}
	}
	if reflected["lamps"] < 2 || reflected["silent"] < 2 {
		t.Errorf("the missions have %v reflections", reflected)
	}
	for _, mission := range []string{"lamps", "silent"} {
		g := b.promoted(mission)
		if g.Step != sum.Guidance[mission] || g.Step == 0 || g.Mission != mission {
			t.Errorf("%s has step %d promoted, its newest is %d", mission, g.Step, sum.Guidance[mission])
		}
		// I7: each step names the one that it was made from
		from := ""
		for step := range g.Step + 1 {
			next, err := guidance.Decode([]byte(b.object(rollout.GuidanceKey(testRun, mission, step))))
			b.check(err)
			if next.From != from {
				t.Errorf("step %d of %s was made from %s, want %s", step, mission, next.From, from)
			}
			from = next.ContentID().String()
		}
	}
	for _, s := range stages { // each mission sees its own guidance
		for _, o := range b.outcomes[s.Input] {
			if l := lineOf(t, o.Line); s.Kind == rollout.Answering && l.Step != s.Guidance[l.Ticket.Mission] {
				t.Fatalf("a line of %s has step %d, want %v", l.Ticket.Mission, l.Step, s.Guidance)
			}
		}
	}
}

// TestGroupsStayInOnePool has groups of several tickets: with two labels and, of every
// third group, one without. What is learnt from one is never measured on another.
func TestGroupsStayInOnePool(t *testing.T) {
	t.Parallel()
	c, _ := small(t)
	var lines strings.Builder
	for i := range 200 {
		content, label := clerk.Ticket(i)
		labels := []string{clerk.Refund, clerk.Refuse}
		if i%3 == 0 {
			labels = []string{label, ""}
		}
		for _, l := range labels {
			ticket := map[string]any{"group_id": fmt.Sprintf("g%d", i), "content": content, "label": l}
			if l == "" {
				ticket["label"] = nil
			}
			lines.Write(append(record.Encode(ticket), '\n'))
		}
	}
	b := newBench(t, c, lines.String(), clerks(t))
	b.run()
	pools, count := map[string]rollout.StageKind{}, map[rollout.StageKind]int{}
	for _, s := range b.stages() {
		if slices.Contains(reflecting, s.Kind) || s.Kind == rollout.Ending {
			continue
		}
		for _, group := range b.groupsIn(s.Input) {
			if in, ok := pools[group]; ok && in != s.Kind {
				t.Errorf("%s is asked about by %s and by %s", group, in, s.Kind)
			} else if !ok {
				pools[group] = s.Kind
				count[s.Kind]++
			}
		}
	}
	if count[rollout.Answering] < 67 || count[rollout.Gating] == 0 || count[rollout.Measuring] == 0 {
		t.Errorf("the groups are asked about by %v", count)
	}
}

// TestGroupsTooLargeForAGateAreRefused has a group of 100 tickets and one of 20: one fills
// the gate, and what is left does not fill the confirmation, so that nothing could ever be
// accepted.
func TestGroupsTooLargeForAGateAreRefused(t *testing.T) {
	t.Parallel()
	c, _ := small(t)
	c.Answer.Verdicts = nil
	var lines strings.Builder
	for i := range 120 {
		content, label := clerk.Ticket(i)
		lines.Write(append(record.Encode(map[string]any{"group_id": fmt.Sprintf("g%d", i/100), "content": content,
			"label": fmt.Sprintf("%s %d", label, i)}), '\n'))
	}
	newBench(t, c, lines.String(), clerks(t)).wantRefused(
		"mission refunds has 120 tickets with a known outcome: their groups, which stay whole, are too large")
}

// TestGradersTakeThePlaceOfLabels compares by the scores of a grader.
func TestGradersTakeThePlaceOfLabels(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Grades = []config.Grade{{Name: "right", Kind: config.GradeExact, Expected: "ticket.answer", IgnoreCase: true,
		Extract: "(?i)verdict: *([a-z]+)"}}
	b := newBench(t, c, strings.ReplaceAll(tickets, `"label":`, `"answer":`), clerks(t))
	sum := b.run()
	if sum.Accepted == 0 || sum.Accuracy != nil || sum.Score == nil {
		t.Errorf("%d accepted, accuracy %v, score %v", sum.Accepted, sum.Accuracy, sum.Score)
	}
	for _, r := range b.reflections() {
		if !r.Gated {
			t.Errorf("reflection %d is not compared", r.Number)
		}
	}
	for id, body := range b.bodies {
		if strings.Contains(string(body), `"answer\":\"ref`) {
			t.Fatalf("the request of %s shows the expected answer: %s", id, body)
		}
	}
}

// TestTooFewLabelsForAGateAreRefused has fewer labelled tickets than a gate and its
// confirmation need. A run that went on without a gate would take any plan.
func TestTooFewLabelsForAGateAreRefused(t *testing.T) {
	t.Parallel()
	c, _ := small(t)
	newBench(t, withMissions(c, "m"), deskTickets("m", 80, 60), clerks(t)).wantRefused(
		"mission m has 60 tickets with a known outcome: the gate and its confirmation need")
}

// TestWithoutGateTheBestStepIsPromoted takes each plan that keeps to the rules, which its
// record says.
func TestWithoutGateTheBestStepIsPromoted(t *testing.T) {
	t.Parallel()
	c, _ := small(t)
	c.Gate.Off = true
	b := newBench(t, withMissions(c, "m"), deskTickets("m", 80, 60), clerks(t))
	sum := b.run()
	if g := b.stages()[0].Pools["m"].Gate; g.Len() != 0 || sum.Accepted == 0 {
		t.Errorf("%d tickets are compared, %d accepted", g.Len(), sum.Accepted)
	}
	for _, r := range b.reflections() {
		if r.Gated {
			t.Errorf("reflection %d is compared", r.Number)
		}
	}
	stages := b.stages()
	sums, best, highest := stages[len(stages)-1].Steps["m"], 0, -1.0
	for step, s := range sums {
		if mean := s.Score / float64(s.Scored); s.Scored > 0 && mean > highest {
			best, highest = step, mean
		}
	}
	if g := b.promoted("m"); g.Step != best {
		t.Errorf("step %d is promoted, the best is %d: %+v", g.Step, best, sums)
	}
}

// TestHarmfulGuidanceIsNotPromoted has no comparison, and a model that a second entry
// confuses: the newest step is not the one that is promoted.
func TestHarmfulGuidanceIsNotPromoted(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Gate.Off = true
	honest := clerks(t)
	b := newBench(t, c, tickets, func(id string, body []byte) reply {
		if !strings.HasPrefix(id, "r") && strings.Contains(string(body), "2. ") {
			return reply{text: "I am confused."}
		}
		return honest(id, body)
	})
	sum := b.run()
	if sum.Guidance["refunds"] == 0 || b.promoted("refunds").Step != 0 {
		t.Errorf("step %d of %d is promoted", b.promoted("refunds").Step, sum.Guidance["refunds"])
	}
	m := sum.Missions["refunds"]
	if m.Gated || m.Promoted != 0 || m.Holdout == nil || m.HoldoutAtStart == nil || *m.Holdout != *m.HoldoutAtStart {
		t.Errorf("the summary has %+v", m)
	}
}

// TestReflectionsTakeTheirBatchAndTheRemainder looks at the sizes of reflections: each has
// a whole batch of tickets, but for the last of an epoch, which has what is left.
func TestReflectionsTakeTheirBatchAndTheRemainder(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	b.run()
	stages, records := b.stages(), b.reflections()
	taught := map[int]int{} // by epoch
	for n, r := range records {
		taught[r.Epoch] += len(r.Cases)
		last := n+1 == len(records) || records[n+1].Epoch != r.Epoch
		if len(r.Cases) != c.Reflection.BatchSize && !(last && len(r.Cases) < c.Reflection.BatchSize) {
			t.Errorf("reflection %d of epoch %d looks at %d tickets", r.Number, r.Epoch, len(r.Cases))
		}
	}
	last := stages[len(stages)-1]
	if len(last.Pending) > 0 {
		t.Errorf("at the end these wait: %+v", last.Pending)
	}
	lessons := map[int]int{}
	for line := range strings.Lines(b.object(record.OutputKey(testRun, rollout.SelectionsFile))) {
		var s struct {
			Epoch   int
			Teaches string
		}
		b.check(json.Unmarshal([]byte(line), &s))
		if s.Teaches != "" && s.Teaches != "none" {
			lessons[s.Epoch]++
		}
	}
	for epoch, n := range lessons {
		if taught[epoch] != n {
			t.Errorf("epoch %d has %d tickets that teach something, %d were looked at", epoch, n, taught[epoch])
		}
	}
}

// TestEpochsHaveOrdersOfTheirOwn compares the tickets of two epochs: the same ones, in
// another order.
func TestEpochsHaveOrdersOfTheirOwn(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	b := newBench(t, c, tickets, clerks(t))
	b.run()
	order := map[int][]string{}
	for _, s := range b.stages() {
		if s.Kind != rollout.Answering {
			continue
		}
		for n, o := range b.outcomes[s.Input] {
			if n%s.Members == 0 {
				order[s.Epoch] = append(order[s.Epoch], lineOf(t, o.Line).Ticket.Group)
			}
		}
	}
	if len(order) != 2 || slices.Equal(order[0], order[1]) {
		t.Fatalf("%d epochs, in the same order", len(order))
	}
	for n := range order {
		slices.Sort(order[n])
	}
	if !slices.Equal(order[0], order[1]) {
		t.Error("the epochs have other tickets")
	}
}

// TestConvergedRunEndsEarly has guidance that nothing improves: the run ends after an
// epoch without a change, and says so.
func TestConvergedRunEndsEarly(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Rollout.Epochs = 10
	b := newBench(t, c, tickets, clerks(t))
	sum := b.run()
	stages := b.stages()
	last := stages[len(stages)-1]
	if !strings.HasPrefix(sum.Stopped, "converged") || last.Epoch >= 9 || last.Learnt {
		t.Errorf("stopped in epoch %d: %q", last.Epoch, sum.Stopped)
	}
	for _, r := range b.reflections() {
		if r.Epoch == last.Epoch && r.Result == rollout.ResultAccepted {
			t.Errorf("reflection %d of the last epoch is accepted", r.Number)
		}
	}
}
