package run

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

var rewrite = flag.Bool("rewrite", false, "write the actual traces into the scripts")

// TestScripts runs the scripts in testdata. A script is a sequence of blocks: the
// commands, then ---- and the trace that they must leave, then a blank line. Each
// block ends with a step.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(raw))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(raw) {
				t.Errorf("the trace differs; run with -rewrite and compare:\n%s", firstDifference(string(raw), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n want %s\n got  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}

// play runs a script and returns it with the actual traces.
func play(t *testing.T, script string) string {
	s := newFixture()
	var out strings.Builder
	inTrace := false
	for i, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		switch {
		case line == "":
			inTrace = false
			out.WriteString("\n")
		case inTrace:
		case line == "----":
			s.step()
			out.WriteString("----\n" + s.trace.String())
			s.trace.Reset()
			inTrace = true
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			if err := s.command(strings.Fields(line)); err != nil {
				t.Fatalf("line %d: %s: %v", i+1, line, err)
			}
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

// fixture is a run with all that coordinate knows of it.
type fixture struct {
	state   State
	world   Observed
	rules   Rules
	now     time.Time
	pending []Event
	crash   string  // where the next step crashes: "save" or "perform"
	inherit Effects // saved, not performed
	trace   strings.Builder
	// attributes are those of each shard.
	attributes func(n int) schedule.Attributes
}

var epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

const testRun = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

func newFixture() *fixture {
	return &fixture{state: New(testRun), now: epoch, rules: Rules{Grace: 10 * time.Second},
		attributes: func(int) schedule.Attributes { return schedule.Attributes{Items: 1} }}
}

// step gives the run the pending events, and performs the effects on control, as
// coordinate does.
func (s *fixture) step() {
	if len(s.inherit) > 0 {
		fmt.Fprintf(&s.trace, "(performs %d inherited effects first)\n", len(s.inherit))
		s.perform(s.inherit)
		s.inherit = nil
	}
	world := withRows(s.state, s.world, s.rules, s.pending, s.attributes, 3)
	next, rejected := Step(s.state, world, s.rules, s.pending, s.now)
	s.print(next, rejected)
	crash := s.crash
	s.crash = ""
	if crash == "save" {
		fmt.Fprintln(&s.trace, "  crash: nothing saved, nothing performed, events come again")
		return
	}
	s.state, s.pending = next, nil
	if crash == "perform" {
		fmt.Fprintln(&s.trace, "  crash: saved, not performed")
		s.inherit = next.Effects
		return
	}
	s.perform(next.Effects)
}

func (s *fixture) perform(es Effects) {
	for _, e := range es {
		switch {
		case e.Kind == SetPause && !s.world.DesiredPause && s.world.DesiredEnd == "":
			s.control(true, "", e.Why)
		case e.Kind == SetEnd && s.world.DesiredEnd == "":
			s.control(false, Reason(e.Why), "")
		}
	}
}

// answerAllBut performs steps without a trace in which every shard in flight but
// one is answered.
func (s *fixture) answerAllBut(slow, steps int) {
	for range steps {
		for _, c := range s.state.InFlight.Chunks {
			for n := c.Lo; n < c.Hi; n++ {
				if n != slow {
					s.pending = append(s.pending, Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 1}})
				}
			}
		}
		s.step()
	}
	s.trace.Reset()
}

func (s *fixture) control(pause bool, end Reason, why string) {
	s.world.Sequence++
	s.world.ControlAt = s.now
	s.world.DesiredPause, s.world.DesiredEnd, s.world.ControlReason = pause, end, why
}

func (s *fixture) print(n State, rejected []Event) {
	var flight []string
	for _, c := range n.InFlight.Chunks {
		flight = append(flight, fmt.Sprintf("%s gen=%d sent=%s", span(c.Range), c.Generation, c.SentAt.Sub(epoch)))
	}
	fmt.Fprintf(&s.trace, "%s next=%d frontier=%d done=%s in_flight=[%s]", n.Phase, n.NextShard, n.Done.Frontier(),
		spans(n.Done.Set.Ranges()), strings.Join(flight, ", "))
	field := func(name, value string) {
		if value != "" && value != "0" {
			fmt.Fprintf(&s.trace, " %s=%s", name, value)
		}
	}
	if !n.Skipped.IsZero() {
		field("skipped", spans(n.Skipped.Ranges()))
	}
	var pruned []string
	for _, v := range n.Pruned {
		pruned = append(pruned, fmt.Sprintf("%d from %d", v.Variant, v.From))
	}
	if len(pruned) > 0 {
		field("pruned", fmt.Sprint(pruned))
	}
	if n.LooksAsked > 0 {
		field("looks", fmt.Sprintf("%d of %d", n.Looks, n.LooksAsked))
	}
	field("reason", string(n.Reason))
	field("frozen", strconv.Itoa(n.FrozenFrontier))
	field("streak", strconv.Itoa(n.FailedStreak))
	field("control", strconv.FormatUint(n.Control, 10))
	s.trace.WriteString("\n")
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&s.trace, "  %s: %s\n", name, value)
		}
	}
	line("message", n.Message)
	line("warning", n.Warning)
	if n.Counts.OK+n.Counts.Failed > 0 {
		line("counts", fmt.Sprintf("ok=%d failed=%d tokens=%d", n.Counts.OK, n.Counts.Failed, n.Counts.CompletionTokens))
	}
	for _, shard := range n.Allowances.Waiting() {
		a, _ := n.Allowances.Of(shard)
		line("waits", fmt.Sprintf("%d spent=%s", shard, spend(a.Spend)))
	}
	for _, e := range n.Effects {
		text := string(e.Kind)
		if e.Range != nil {
			text += " " + span(*e.Range)
		}
		if e.Pruned != nil {
			text += fmt.Sprintf(" %d from %d", e.Pruned.Variant, e.Pruned.From)
		}
		if e.Kind == Send {
			text += fmt.Sprintf(" gen=%d", e.Generation)
		}
		if !e.Allowance.IsZero() {
			text += " allowance=" + spend(e.Allowance)
		}
		if e.Why != "" {
			text += " why=" + e.Why
		}
		line("effect", text)
	}
	for _, e := range rejected {
		line("rejected", fmt.Sprintf("%s %d", e.Kind, e.Shard))
	}
}

func span(r interval.Range) string {
	if r.Len() == 1 {
		return strconv.Itoa(r.Lo)
	}
	return fmt.Sprintf("%d-%d", r.Lo, r.Hi-1)
}

func spans(rs []interval.Range) string {
	var out []string
	for _, r := range rs {
		out = append(out, span(r))
	}
	return "[" + strings.Join(out, " ") + "]"
}

// command changes what the run observes, adds pending events, or advances the
// clock. The scripts show the words.
func (s *fixture) command(words []string) error {
	args, opts, flags := split(words[1:])
	switch words[0] {
	case "step":
		s.step()
	case "tick":
		d, err := time.ParseDuration(args[0])
		s.now = s.now.Add(d)
		return err
	case "rules":
		return s.setRules(opts, flags)
	case "plan":
		return s.setPlan(opts, flags)
	case "variants": // the variants and chains of the shards, in turns
		var variants, chains int
		if err := errors.Join(atoi(args[0], &variants), atoi(opts["chains"], &chains)); err != nil {
			return err
		}
		s.attributes = func(n int) schedule.Attributes {
			return schedule.Attributes{Variant: uint32(n % variants), Chain: uint32(n/variants%chains) + 1, Items: 1}
		}
	case "prune":
		var v, from int
		if err := errors.Join(atoi(args[0], &v), atoi(cmp.Or(opts["from"], "0"), &from)); err != nil {
			return err
		}
		s.pending = append(s.pending, Event{Kind: VariantPruned, Variant: uint32(v), Shard: from, Why: "it is worse"})
	case "looks": // how many are decided, the place of the next one, and that of the one behind it
		var err [3]error
		l := &s.world.Looks
		for i, to := range []*int{&l.Decided, &l.Next, &l.Limit} {
			err[i] = atoi(args[i], to)
		}
		return errors.Join(err[:]...)
	case "answer-all-but":
		var slow, steps int
		if err := atoi(args[0], &slow); err != nil {
			return err
		}
		if err := atoi(opts["steps"], &steps); err != nil {
			return err
		}
		s.answerAllBut(slow, steps)
	case "pool":
		return atoi(args[0], &s.world.Pool)
	case "workers":
		return atoi(args[0], &s.world.Workers)
	case "control":
		switch args[0] {
		case "pause":
			s.control(true, "", strings.Join(args[1:], " "))
		case "run":
			s.control(false, "", "")
		case "end":
			s.control(false, Reason(args[1]), "")
		default:
			return fmt.Errorf("unknown desired state")
		}
	case "unacknowledged":
		return atoi(args[0], &s.world.Unacknowledged)
	case "ack":
		s.world.Unacknowledged = 0
	case "crash":
		s.crash = args[0]
		s.step()
	case "look", "ring":
		s.pending = append(s.pending, Event{Kind: EventKind(words[0])})
	case "used_up":
		e := Event{Kind: ShardUsedUp}
		err := errors.Join(atoi(args[0], &e.Shard), toSpend(opts["allowance"], &e.Allowance),
			toSpend(opts["spent"], &e.Spent))
		s.pending = append(s.pending, e)
		return err
	case "missing", "changed":
		s.pending = append(s.pending, Event{Kind: EventKind(words[0]), Why: strings.Join(args, " ")})
	case "done", "lost", "released", "finalized", "failed":
		return s.news(EventKind(words[0]), args, opts)
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

// spend formats an amount as tokens, and dollars behind them if there are any: "12+$0.000345".
func spend(s cost.Spend) string {
	if s.MicroUSD == 0 {
		return fmt.Sprint(s.Tokens)
	}
	return fmt.Sprintf("%d+$%.6f", s.Tokens, s.USD())
}

// toSpend reads what spend formats.
func toSpend(text string, to *cost.Spend) error {
	tokens, dollars, found := strings.Cut(text, "+$")
	*to = cost.Spend{}
	if err := atoi64(tokens, &to.Tokens); err != nil || !found {
		return err
	}
	usd, err := strconv.ParseFloat(dollars, 64)
	to.MicroUSD = cost.LimitOf(0, usd).MicroUSD
	return err
}

func (s *fixture) setRules(opts map[string]string, flags map[string]bool) error {
	s.rules.FailFast, s.rules.Constraints.Chains = flags["failfast"], flags["chains"]
	for name, to := range map[string]*int{"failed_shards": &s.rules.FailedShards,
		"max": &s.rules.Constraints.MaxInFlight, "max_of_variant": &s.rules.Constraints.MaxInFlightByVariant} {
		if v, ok := opts[name]; ok {
			if err := atoi(v, to); err != nil {
				return err
			}
		}
	}
	for name, to := range map[string]*time.Duration{"grace": &s.rules.Grace, "settle": &s.rules.Settle} {
		if v, ok := opts[name]; ok {
			d, err := time.ParseDuration(v)
			if err != nil {
				return err
			}
			*to = d
		}
	}
	if v, ok := opts["deadline"]; ok {
		d, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		s.rules.Deadline = epoch.Add(d)
	}
	if v, ok := opts["tokens"]; ok {
		return toSpend(v, &s.rules.Budget)
	}
	return nil
}

func (s *fixture) setPlan(opts map[string]string, flags map[string]bool) error {
	s.world.Complete, s.world.Growing = flags["complete"], flags["growing"]
	s.world.PlanProblem, s.world.PlanProblemEnd = opts["problem"], Reason(opts["ends"])
	s.world.PlanProblemControl = s.world.Sequence
	if v, ok := opts["shards"]; ok {
		if err := atoi(v, &s.world.Shards); err != nil {
			return err
		}
		s.world.Items = uint64(s.world.Shards)
	}
	return nil
}

// news adds one pending event for each shard of the range, "3" or "0..7".
func (s *fixture) news(kind EventKind, args []string, opts map[string]string) error {
	c := shard.Counts{OK: 1}
	gen := 0
	for name, to := range map[string]*int{"ok": &c.OK, "failed": &c.Failed, "gen": &gen} {
		if v, given := opts[name]; given {
			if err := atoi(v, to); err != nil {
				return err
			}
		}
	}
	if v, given := opts["tokens"]; given {
		var spent cost.Spend
		if err := toSpend(v, &spent); err != nil {
			return err
		}
		c.CompletionTokens, c.TokenNanoUSD = spent.Tokens, 1000*spent.MicroUSD
	}
	if c.Failed > 0 {
		c.ByClass = map[string]int{"engine": c.Failed}
	}
	if kind != ShardDone && kind != Finalized {
		c = shard.Counts{}
	}
	lo, hi := 0, 0
	if len(args) > 0 {
		from, to, many := strings.Cut(args[0], "..")
		if err := atoi(from, &lo); err != nil {
			return err
		}
		hi = lo
		if many {
			if err := atoi(to, &hi); err != nil {
				return err
			}
		}
	}
	for n := lo; n <= hi; n++ {
		s.pending = append(s.pending, Event{Kind: kind, Shard: n, Generation: gen, Counts: c,
			Vanished: slices.Contains(args, "vanished")})
	}
	return nil
}

// split returns the plain words, those of the form name=value, and the plain
// words as flags.
func split(words []string) (args []string, opts map[string]string, flags map[string]bool) {
	opts, flags = map[string]string{}, map[string]bool{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = v
			continue
		}
		flags[w] = true
		args = append(args, w)
	}
	return args, opts, flags
}

func atoi(s string, to *int) (err error) {
	*to, err = strconv.Atoi(s)
	return err
}

func atoi64(s string, to *int64) (err error) {
	*to, err = strconv.ParseInt(s, 10, 64)
	return err
}
