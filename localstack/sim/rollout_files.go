package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// memberRow is what the check reads of a row of an artifact.
type memberRow struct {
	ID, Cause, Verdict, Mission string
	Selected                    bool
	Batch, Step                 int
}

// checkRollout checks the files of a rollout against its rows: every member of what was
// dispatched is one trajectory or one failure (I1), in its order (I4), and all members of a
// batch saw one step of their mission's guidance (I6).
func (s *scenario) checkRollout(ctx context.Context, st run.State, completions, failed [][]byte, sum record.Summary) {
	t := s.tickets
	if t == nil {
		return
	}
	verdicts := map[string]string{} // by member: "" is an answer without one
	pattern := regexp.MustCompile(t.pattern)
	for _, row := range completions {
		var c struct{ ID, Completion string }
		s.decode(row, &c)
		if verdicts[c.ID] = ""; pattern.MatchString(c.Completion) {
			all := pattern.FindAllStringSubmatch(c.Completion, -1)
			verdicts[c.ID] = all[len(all)-1][1]
		}
	}
	want, refused := len(completions)+len(failed), 0
	type place struct {
		batch   int
		mission string
	}
	steps, votes, selected := map[place]int{}, map[string]map[string]int{}, map[string]string{}
	causes := map[string]int{}
	for _, name := range []string{rollout.TrajectoriesFile, rollout.FailuresFile} {
		last := -1
		for _, raw := range split(s.object(ctx, record.OutputKey(s.id, name))) {
			var r memberRow
			if s.decode(raw, &r); r.ID == "" {
				refused++
				continue
			}
			want--
			verdict, answered := verdicts[r.ID]
			ok := answered && verdict != "" && r.Cause != rollout.Restarted
			if ok != (name == rollout.TrajectoriesFile) || ok && r.Verdict != verdict {
				s.audit.breakf("I1: %s has %s, and the verdict of its answer is %q", name, raw, verdict)
			}
			if r.Cause != "" {
				causes[r.Cause]++
			}
			at := place{r.Batch, r.Mission}
			if step, ok := steps[at]; ok && step != r.Step {
				s.audit.breakf("I6: in batch %d one member of %s saw step %d, and another one %d", r.Batch, r.Mission, step,
					r.Step)
			}
			if steps[at] = r.Step; r.Batch < last {
				s.audit.breakf("I4: %s has batch %d after batch %d", name, r.Batch, last)
			}
			if last = r.Batch; r.Cause == rollout.Restarted {
				continue // the ticket was asked anew
			}
			of, _, _ := strings.Cut(r.ID, ".d") // the ticket in its epoch
			if votes[of] == nil {
				votes[of] = map[string]int{}
			}
			if r.Verdict != "" {
				votes[of][r.Verdict]++
			}
			if r.Selected {
				selected[of] += r.Verdict
			}
		}
	}
	if want != 0 {
		s.audit.breakf("I1: %d members are in no file of the rollout", want)
	}
	s.checkSelections(votes, selected)
	out := sum.Rollout
	if out == nil || len(votes) > 0 && (out.Refused != t.refused || refused != t.refused) || out.Tickets != len(votes) ||
		fmt.Sprint(out.Failed) != fmt.Sprint(causes) && len(causes) > 0 {
		s.audit.breakf("the summary has %+v; %d tickets were answered, %d lines are invalid, failed are %v", out,
			len(votes), t.refused, causes)
	}
	if n := len(split(s.object(ctx, record.OutputKey(s.id, rollout.SelectionsFile)))); n != len(votes) {
		s.audit.breakf("%d tickets have %d selections", len(votes), n)
	}
	if (len(completions)+len(failed))%t.members() != 0 {
		s.audit.breakf("I1: %d members do not make whole tickets", len(completions)+len(failed))
	}
	s.checkAttempts(ctx)
	s.checkReference(ctx, completions, failed, sum)
	s.checkStages(ctx, st)
}

// checkAttempts checks that the file of the attempts names for each shard the attempt that
// its document has: what another attempt answered is in no file.
func (s *scenario) checkAttempts(ctx context.Context) {
	for _, raw := range split(s.object(ctx, record.OutputKey(s.id, rollout.AttemptsFile))) {
		var a rollout.Attempt
		s.decode(raw, &a)
		d, known := s.audit.shards[identity.ShardKey(s.id, a.Shard)]
		if !known || d.Attempt != a.Attempt || d.Worker != a.Worker {
			s.audit.breakf("%s has %s, and the shard has attempt %d of %s", rollout.AttemptsFile, raw, d.Attempt, d.Worker)
		}
	}
}

// checkSelections checks that a verdict with the most votes is selected, once, of each
// ticket that has one.
func (s *scenario) checkSelections(votes map[string]map[string]int, selected map[string]string) {
	for of, counts := range votes {
		most := 0
		for _, n := range counts {
			most = max(most, n)
		}
		if got := selected[of]; counts[got] != most || (got == "") != (most == 0) {
			s.audit.breakf("ticket %s has the votes %v, and %q is selected", of, counts, got)
		}
	}
}

func (s *scenario) decode(row []byte, into any) {
	if err := json.Unmarshal(row, into); err != nil {
		s.t.Fatalf("seed %d: %v in %s", s.seed, err, row)
	}
}
