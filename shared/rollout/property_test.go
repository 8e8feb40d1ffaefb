package rollout

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// TestEveryMemberIsATrajectoryOrAFailure answers random runs, with any failures and with
// graders or without, and stops some of them. Over the dispatched batches, trajectories and
// failures by cause are the members of the tickets, whatever fails.
func TestEveryMemberIsATrajectoryOrAFailure(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := config.Run{Runner: &config.Runner{RolloutBatchSize: rapid.IntRange(1, 4).Draw(rt, "batch")},
			Answer: &config.Answer{Pattern: "[yn]"},
			Selection: &config.Selection{ReviewBelow: 0.5,
				Policy: rapid.SampledFrom([]string{"vote_strength", "label_match", "best_score"}).Draw(rt, "policy")}}
		for range rapid.IntRange(0, 3).Draw(rt, "decodes") {
			c.Decodes = append(c.Decodes, config.Decode{Samples: rapid.IntRange(0, 3).Draw(rt, "samples")})
		}
		if rapid.Bool().Draw(rt, "graded") {
			c.Grades = []config.Grade{{Name: "g", Kind: config.GradeExact}}
		}
		var lines []string
		for n := range rapid.IntRange(0, 9).Draw(rt, "tickets") {
			lines = append(lines, ticketLine(fmt.Sprint(n), rapid.SampledFrom([]string{"", "y", "n"}).Draw(rt, "label")))
			if rapid.IntRange(0, 4).Draw(rt, "bad") == 0 {
				lines = append(lines, "no ticket")
			}
		}
		causes := map[string]int{}
		f := newFixture(t, c, lines...)
		stop := rapid.IntRange(0, 300).Draw(rt, "stop")
		outcomes, stages := f.run(stop, func(int, string) answer {
			says := rapid.SampledFrom([]string{"y", "y", "n", "?", "!engine", "!budget", "!canceled", "lost"}).Draw(rt, "answer")
			switch {
			case says == "lost":
				causes["storage"]++
				return answer{class: fault.Storage}
			case strings.HasPrefix(says, "!"):
				causes[says[1:]]++
				return answer{class: fault.Class(says[1:])}
			case says == "?":
				causes["unparsable"]++
			}
			a := answer{text: says}
			if c.Grades != nil {
				score := rapid.SampledFrom([]string{"0", "0.5", "1", "null"}).Draw(rt, "score")
				a.scores = fmt.Sprintf(`"score":%s,"scores":{"g":{"score":%s,"cause":"timeout"}}`, score, score)
			}
			return a
		})
		dispatched := 0
		for _, s := range stages {
			dispatched += s.Items
		}
		sum, err := f.ended(f.blobs, len(outcomes)).Publish(t.Context())
		f.check(err)
		want := min(stop, dispatched)
		failed := 0
		for cause, n := range causes {
			if failed += n; sum.Failed[cause] != n {
				rt.Fatalf("%d members failed by %s, not %d", sum.Failed[cause], cause, n)
			}
		}
		trajectories, failures := f.rows(TrajectoriesFile), f.rows(FailuresFile)
		if len(trajectories)+failed != want || sum.Answered != len(trajectories) || len(failures) != failed+sum.Refused {
			rt.Fatalf("%d members: %d trajectories, %d failures with %d refused lines, %+v", want, len(trajectories),
				len(failures), sum.Refused, sum)
		}
		checkMembers(rt, outcomes, append(trajectories, failures[sum.Refused:]...))
		if tickets := (want + c.Members() - 1) / c.Members(); len(f.rows(SelectionsFile)) != tickets ||
			sum.Tickets != tickets {
			rt.Fatalf("%d tickets have %d selections", tickets, len(f.rows(SelectionsFile)))
		}
		if n := len(f.rows(ReviewFile)); n != sum.Review {
			rt.Fatalf("%d tickets are to be reviewed, not %d", n, sum.Review)
		}
	})
}

// checkMembers checks that each member has one row, with its ticket, decode and seed, and
// that the members of a ticket see one step.
func checkMembers(rt *rapid.T, outcomes []Outcome, rows []string) {
	type names struct {
		ID, Group                   string
		Decode, Sample, Batch, Step int
		Seed                        int64
	}
	left := map[string]names{}
	for _, o := range outcomes {
		l := memberLine(rt, string(o.Line))
		ticket, err := restOf(l.Ticket)
		if err != nil {
			rt.Fatal(err)
		}
		left[l.ID] = names{l.ID, ticket.Group, l.Decode, l.Sample, l.Batch, l.Step, l.Seed}
	}
	for _, text := range rows {
		var row struct {
			names
			Group string `json:"group_id"`
		}
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			rt.Fatal(err)
		}
		row.names.Group = row.Group
		if want, ok := left[row.ID]; !ok || want != row.names {
			rt.Fatalf("the row %s is not that of %+v", text, want)
		}
		delete(left, row.ID)
	}
	if len(left) > 0 {
		rt.Fatalf("%v have no row", left)
	}
}
