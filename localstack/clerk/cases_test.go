package clerk_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rollout/shared/core/guidance"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// TestC45 asks a model that answers every ticket and fails whenever it shall reflect: the
// run ends with that reason after stop_after reflections, and what it has is whole.
func TestC45FailingReflectionStopsTheRun(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	c.Reflection.StopAfter = 3
	honest := clerks(t)
	garbage := attacks("")
	for name, broken := range map[string]func(id string) reply{
		"status 500": func(string) reply { return reply{"the server answered 500", fault.Engine} },
		"refused":    func(string) reply { return reply{"content policy", fault.Refused} },
		"garbage":    func(string) reply { return reply{text: "I would rather not."} },
		"different garbage": func(id string) reply {
			return reply{text: garbage[len(id)%len(garbage)].text([]byte(`\"t1\"`))}
		},
		"fails at the plan": func(id string) reply {
			if strings.Contains(id, ".consolidate.") {
				return reply{"the server answered 500", fault.Engine}
			}
			return reply{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c, tickets, func(id string, body []byte) reply {
				if strings.HasPrefix(id, "r") {
					if r := broken(id); r != (reply{}) {
						return r
					}
				}
				return honest(id, body)
			})
			sum := b.run()
			want := fmt.Sprintf("%d reflections in a row failed", c.Reflection.StopAfter)
			if !strings.Contains(sum.Stopped, want) || sum.Reflections != c.Reflection.StopAfter || sum.Accepted != 0 {
				t.Errorf("%d reflections, %d accepted, stopped: %q", sum.Reflections, sum.Accepted, sum.Stopped)
			}
			records := b.reflections()
			why := records[len(records)-1].Why
			if len(records) != sum.Reflections || why == "" || !strings.HasSuffix(sum.Stopped, why) ||
				name == "status 500" && !strings.Contains(why, "answered 500") {
				t.Errorf("the last of %d reflections failed because %q, stopped: %q", len(records), why, sum.Stopped)
			}
			b.whole(sum)
			if g := b.promoted("refunds"); g.Step != 0 {
				t.Errorf("step %d is promoted", g.Step)
			}
		})
	}
}

// whole checks that each ticket of the batches that were answered has all its members in
// the files, each once, and that the sums agree.
func (b *bench) whole(sum record.Rollout) {
	b.Helper()
	tickets := 0
	for _, s := range b.stages() {
		if s.Kind == rollout.Answering {
			tickets += s.To - s.From
		}
	}
	rows := map[string]int{}
	for _, file := range []string{rollout.TrajectoriesFile, rollout.FailuresFile} {
		for line := range strings.Lines(b.object(record.OutputKey(testRun, file))) {
			rows[lineOf(b, []byte(line)).ID]++
		}
	}
	for id, n := range rows {
		if n != 1 {
			b.Errorf("%s has %d rows", id, n)
		}
	}
	failed := 0
	for _, n := range sum.Failed {
		failed += n
	}
	members := tickets * b.manifest.Config.Members()
	if sum.Tickets != tickets || len(rows) != members || sum.Answered+failed != members {
		b.Errorf("%d tickets with %d rows, %d answered and %d failed, want %d tickets and %d members", sum.Tickets, len(rows),
			sum.Answered, failed, tickets, members)
	}
}

// TestC45CountsFailuresInARow has a reflection that works, though its plan is rejected,
// between those that fail: it begins the count anew.
func TestC45CountsFailuresInARow(t *testing.T) {
	t.Parallel()
	c := runConfig(t, fmt.Sprintf(nullConfig, 1, 1))
	c.Gate.Share, c.Reflection.StopAfter = 0.4, 2
	b := newBench(t, c, coins(60), func(id string, body []byte) reply {
		if strings.HasPrefix(id, "r0.s") || strings.HasPrefix(id, "r2.s") || strings.HasPrefix(id, "r4.s") {
			return reply{class: fault.Engine}
		}
		return guesser(id, body)
	})
	sum := b.run()
	if sum.Reflections < 5 || strings.Contains(sum.Stopped, "in a row") {
		t.Errorf("%d reflections, stopped: %q", sum.Reflections, sum.Stopped)
	}
	for _, r := range b.reflections() {
		want := rollout.ResultRejected
		if r.Number < 5 && r.Number%2 == 0 {
			want = rollout.ResultFailed
		}
		if r.Result != want {
			t.Errorf("reflection %d is %s: %s", r.Number, r.Result, r.Why)
		}
	}
}

// TestC46 has tickets that are always too long: their members are counted by cause, in
// every epoch, and the others teach.
func TestC46PromptsThatAreTooLongAreCounted(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	honest := clerks(t)
	b := newBench(t, c, tickets, func(id string, body []byte) reply {
		if strings.Contains(string(body), " jacket ") {
			return reply{"the prompt has more tokens than the model takes", fault.TooLong}
		}
		return honest(id, body)
	})
	sum := b.run()
	failed := strings.Count(b.object(record.OutputKey(testRun, rollout.FailuresFile)), `"cause":"too_long"`)
	if sum.Failed[string(fault.TooLong)] != failed || failed < 20 {
		t.Errorf("%d failures are written, the sums are %v", failed, sum.Failed)
	}
	if sum.Accepted == 0 {
		t.Error("nothing was learnt from the other tickets")
	}
	for id, n := range b.calls {
		if n != 1 {
			t.Errorf("%s was asked %d times", id, n)
		}
	}
	b.whole(sum)
}

// TestGuidanceThatMakesPromptsTooLongDoesNotWin has guidance that gains nothing, but makes
// the prompts too long that would be answered wrong. They count as wrong: a candidate must
// not win by what it makes unanswerable.
func TestGuidanceThatMakesPromptsTooLongDoesNotWin(t *testing.T) {
	t.Parallel()
	accepted, reflections := 0, 0
	for seed := range 3 {
		c := runConfig(t, fmt.Sprintf(nullConfig, seed, 1))
		c.Gate.Tickets = 40
		b := newBench(t, c, coins(100), func(id string, body []byte) reply {
			said := guesser(id, body)
			coin := coinNumber.FindSubmatch(body)
			if strings.HasPrefix(id, "r") || coin == nil || !strings.Contains(string(body), `\n2. `) {
				return said
			}
			if n, err := strconv.Atoi(string(coin[1])); err != nil || said.text != coinLabel(n) {
				return reply{class: fault.TooLong}
			}
			return said
		})
		sum := b.run()
		accepted, reflections = accepted+sum.Accepted, reflections+sum.Reflections
	}
	if accepted > 0 || reflections == 0 {
		t.Errorf("%d of %d reflections are accepted", accepted, reflections)
	}
}

var coinNumber = regexp.MustCompile(`"coin (\d+)"`)

// TestC44 ends a run in the middle of each stage, as a budget does: what was answered is in
// the files, the rest of the stage has its cause, and the guidance is the last accepted one.
func TestC44BudgetEndsWithinAnyStage(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	ended := map[rollout.StageKind]bool{}
	for end := 1; end <= 14; end++ {
		b := newBench(t, c, tickets, nil)
		number, asked := 1, 0
		b.answer = func(id string, body []byte) reply {
			if asked++; number == end && asked > 3 {
				return reply{"the budget is used up", fault.Budget}
			}
			return clerks(t)(id, body)
		}
		for ; number <= end; number++ {
			asked = 0
			b.stage(b.bucket, number, plainly)
		}
		sum := b.publish()
		last := b.stages()[end-1]
		ended[last.Kind] = true
		b.whole(sum)
		if last.Kind == rollout.Answering {
			if want := len(b.outcomes[end]) - 3; sum.Failed[string(fault.Budget)] != want {
				t.Errorf("ended in stage %d: %v, want %d without budget", end, sum.Failed, want)
			}
		} else if len(sum.Failed) > 0 && sum.Failed[string(fault.Budget)] > 0 {
			t.Errorf("ended in stage %d, %s, answers are charged: %v", end, last.Kind, sum.Failed)
		}
		if sum.Guidance["refunds"] != last.Guidance["refunds"] || b.promoted("refunds").Step > last.Guidance["refunds"] {
			t.Errorf("ended in stage %d: step %d is promoted, the guidance is %v", end, b.promoted("refunds").Step,
				last.Guidance)
		}
	}
	for _, k := range append(reflecting, rollout.Answering, rollout.Gating, rollout.Confirming, rollout.Measuring) {
		if !ended[k] {
			t.Errorf("no run ended within a stage of %s", k)
		}
	}
}

// TestC48 loses answers within a batch for infrastructure reasons, as after a preemption
// that could not be made good: the members are listed by cause, the others count.
func TestC48MembersThatWereLostAreListed(t *testing.T) {
	t.Parallel()
	c, tickets := small(t)
	honest := clerks(t)
	b := newBench(t, c, tickets, func(id string, body []byte) reply {
		if number(20, id) == 0 {
			return reply{"the worker was lost", fault.WorkerLost}
		}
		return honest(id, body)
	})
	sum := b.run()
	if sum.Failed[string(fault.WorkerLost)] < 10 || sum.Accepted == 0 {
		t.Errorf("failed: %v, %d accepted", sum.Failed, sum.Accepted)
	}
	b.whole(sum)
	for _, r := range b.reflections() {
		for _, candidate := range r.Candidates {
			if g := candidate.Gate; g != nil && g.Tickets+g.LeftOut < c.GateOf().MinTickets {
				t.Errorf("reflection %d compared %d tickets and left out %d", r.Number, g.Tickets, g.LeftOut)
			}
		}
	}
}

// TestHostileTicketsKeepStagesSmall reflects on long tickets and answers of characters
// that JSON escapes.
func TestHostileTicketsKeepStagesSmall(t *testing.T) {
	t.Parallel()
	c := runConfig(t, `
schema_version = 1
kind = "rollout"
[rollout]
system = "{guidance}"
prompt = "{content}"
[[mission]]
name = "m"
entries = ["Rule."]
[[decode]]
samples = 20
[answer]
pattern = "v(\\d+)"
[runner]
rollout_batch_size = 40
[reflection]
batch_size = 32
[gate]
off = true
`)
	var lines strings.Builder
	for n := range 40 {
		fmt.Fprintf(&lines, `{"group_id":"g%d","content":"%s"}`+"\n", n, strings.Repeat(`<\u0001`, 20_000))
	}
	b := newBench(t, c, lines.String(), func(id string, body []byte) reply {
		switch {
		case strings.Contains(id, ".summarise."):
			return reply{text: `{"summary":"s","lesson":"l"}`}
		case strings.HasPrefix(id, "r"):
			return reply{text: plan(guidance.Operation{Kind: guidance.Add, Text: id, Reason: "r", Evidence: evidence(body)})}
		}
		return reply{text: fmt.Sprintf("v%d %s", number(1000, id), strings.Repeat("<\x01é", 5000))}
	})
	if sum := b.run(); sum.Accepted == 0 {
		t.Errorf("%+v, stopped: %s", sum, sum.Stopped)
	}
	for key, content := range b.objects() {
		if strings.Contains(key, "/stage/") && len(content) > 16<<20 {
			t.Errorf("%s has %d bytes", key, len(content))
		}
	}
}
