package leaderboard

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"rollout/scripts/rollout/progress"
	"rollout/shared/core/statistics"
	"rollout/shared/figures"
	"rollout/shared/record"
)

// significant is the adjusted P from which on two variants do not count as different.
const significant = 0.05

// maxPairs bounds the pairs of the text; the JSON has all.
const maxPairs = 45

// WriteText writes the report as tables for a terminal.
func WriteText(w io.Writer, r Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "trials %s (%s): %s, %s, %s each\n\n", r.Run, line(r.Name), figures.Of(r.Tasks, "task"),
		figures.Of(len(r.Variants), "variant"), figures.Of(r.Replications, "replication"))
	table(&b, "variant\tscore\t95 % interval\ttrials\tfailed\tnot counted\ttokens a trial", func(row func(...string)) {
		for _, v := range r.Variants {
			lost := sum(v.Infrastructure) + sum(v.Ungraded) + v.Pruned
			row(line(v.Name), number(v.Score), interval(v.Low, v.High), figures.Count(v.Trials), figures.Count(sum(v.Failed)),
				figures.Count(lost), perTrial(v.CompletionTokens, v.Answered))
		}
	})
	for _, v := range r.Variants {
		if v.Score != nil && v.Worst != nil && *v.Worst < *v.Best {
			fmt.Fprintf(&b, "%s: from %s to %s, whatever the trials without a score would have had\n", line(v.Name),
				number(v.Worst), number(v.Best))
		}
	}
	for _, v := range r.Variants {
		if v.PrunedAt != nil {
			b.WriteString(prunedText(v) + "\n")
		}
	}
	if r.HasCosts() {
		b.WriteString("\n")
		r.writeCosts(&b)
	}
	if len(r.Reduced) > 0 {
		b.WriteString("\n")
		table(&b, "variant\t"+r.Reducer+" of each task\t95 % interval\ttasks", func(row func(...string)) {
			for _, v := range r.Reduced {
				row(line(v.Variant), number(v.Score), interval(v.Low, v.High), figures.Count(v.Tasks))
			}
		})
	}
	if len(r.Pairs) > 0 {
		b.WriteString("\n")
		r.writePairs(&b)
	}
	if len(r.Passes) > 1 {
		b.WriteString("\n")
		r.writePasses(&b)
	}
	for _, of := range []struct {
		what string
		Tasks
	}{{"no variant solves", r.Unsolved}, {"every trial solves", r.Solved}} {
		if of.Count > 0 {
			fmt.Fprintf(&b, "\n%s %s: %s\n", of.what, figures.Of(of.Count, "task"), line(of.names(10)))
		}
	}
	if r.Second != "" {
		fmt.Fprintf(&b, "\n%s is better than %s on %s, and worse on %s", line(r.Second), line(r.First),
			figures.Of(r.Better, "task"), figures.Count(r.Worse))
		b.WriteString("; --json and the page of -o FILE have the answers\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// HasCosts reports whether a variant has a price, or solves a task.
func (r Report) HasCosts() bool {
	return slices.ContainsFunc(r.Variants, func(v record.TrialVariant) bool {
		return v.TokensUSD != nil || v.UntilSuccess != nil
	})
}

// writeCosts writes what the variants cost, and what it takes to have a success.
func (r Report) writeCosts(b *strings.Builder) {
	const head = "variant\tmodel\ttokens\tsolved tasks\ta solved task\tuntil a success\tof tokens\tof time\t" +
		"time of a success"
	table(b, head, func(row func(...string)) {
		for _, v := range r.Variants {
			u := until(v)
			row(line(v.Name), line(v.Model), dollars(v.TokensUSD), figures.Count(v.SolvedTasks), dollars(v.USDPerSolved),
				u.Trials, u.Dollars, u.Seconds, u.Success)
		}
	})
	if r.JudgesUSD != nil {
		fmt.Fprintf(b, "judges: %s\n", dollars(r.JudgesUSD))
	}
	b.WriteString("until a success: the mean over the solved tasks; time is that of agents, of a success median to 90 %\n")
}

// untilTexts is a record.UntilSuccess for people.
type untilTexts struct{ Trials, Dollars, Seconds, Success string }

func until(v record.TrialVariant) untilTexts {
	s := v.UntilSuccess
	if s == nil {
		return untilTexts{none, none, none, none}
	}
	out := untilTexts{strconv.FormatFloat(s.Trials, 'f', 2, 64) + " trials", dollars(s.USD), seconds(s.Seconds), none}
	if s.SuccessMedian != nil {
		out.Success = seconds(s.SuccessMedian) + " to " + seconds(s.SuccessP90)
	}
	return out
}

// none stands for a number that there is none of.
const none = "–"

func dollars(x *float64) string {
	if x == nil {
		return none
	}
	return figures.Dollars(*x)
}

func seconds(x *float64) string {
	if x == nil {
		return none
	}
	return strconv.FormatFloat(*x, 'f', 2, 64) + " s"
}

// prunedText says where a variant was pruned, how many of its trials were begun, and why.
func prunedText(v record.TrialVariant) string {
	return progress.SanitizeLine(fmt.Sprintf("%s: pruned after %s of %s, at %s", v.Name, figures.Count(v.Trials-v.Pruned),
		figures.Of(v.Trials, "trial"), v.PrunedAt.Why), 400)
}

// names returns the first n tasks.
func (t Tasks) names(n int) string {
	text := strings.Join(t.First[:min(n, len(t.First))], ", ")
	if t.Count > n {
		text += ", …"
	}
	return text
}

func (r Report) writePairs(b *strings.Builder) {
	table(b, "pair\tdifference\t95 % interval\tbetter/worse\tp\tadjusted\ttest\tdetectable", func(row func(...string)) {
		for _, p := range r.Pairs[:min(len(r.Pairs), maxPairs)] {
			row(line(p.Second)+" − "+line(p.First), signed(p.Difference), interval(p.Low, p.High),
				fmt.Sprintf("%s/%s of %s", figures.Count(p.Better), figures.Count(p.Worse), figures.Count(p.Tasks)),
				probability(p.P), probability(p.Adjusted)+star(p), testName(p.Test), number(p.Detectable))
		}
	})
	if n := len(r.Pairs) - maxPairs; n > 0 {
		fmt.Fprintf(b, "and %s: --json has all\n", figures.Of(n, "further pair"))
	}
	b.WriteString("* differs: p, adjusted for the number of pairs (Holm), is below 0.05; a task counts once\n")
}

func star(p Pair) string {
	if p.Differs() {
		return " *"
	}
	return ""
}

// Differs reports whether the pair shows a difference that is not chance.
func (p Pair) Differs() bool { return p.Adjusted != nil && *p.Adjusted < significant }

func testName(t statistics.Test) string {
	if t == statistics.TestMcNemar {
		return "McNemar, exact"
	}
	return "paired t, bootstrap"
}

func (r Report) writePasses(b *strings.Builder) {
	head := "k"
	for _, v := range r.Variants {
		head += "\t" + line(v.Name) + " pass@k\tpass^k"
	}
	table(b, head, func(row func(...string)) {
		for _, p := range r.Passes {
			cells := []string{strconv.Itoa(p.K)}
			for v := range r.Variants {
				cells = append(cells, number(p.Any[v]), number(p.All[v]))
			}
			row(cells...)
		}
	})
}

// table writes a table with these columns.
func table(b *strings.Builder, head string, rows func(row func(...string))) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	rows(func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) })
	_ = w.Flush() // a strings.Builder takes all
}

func sum(counts map[string]int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}

// line makes a text of a run harmless in a line of a terminal.
func line(s string) string { return progress.SanitizeLine(s, 200) }

func number(x *float64) string {
	if x == nil {
		return "–"
	}
	return strconv.FormatFloat(*x, 'f', 3, 64)
}

func signed(x *float64) string {
	if x != nil && *x > 0 {
		return "+" + number(x)
	}
	return number(x)
}

func probability(p *float64) string {
	if p != nil && *p < 0.0005 {
		return "<0.001"
	}
	return number(p)
}

func interval(low, high *float64) string {
	if low == nil || high == nil {
		return "–"
	}
	return number(low) + " to " + number(high)
}

func perTrial(tokens int64, n int) string {
	if n == 0 {
		return "–"
	}
	return strconv.FormatFloat(float64(tokens)/float64(n), 'f', 1, 64)
}
