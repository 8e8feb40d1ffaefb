package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/scripts/rollout/compare"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/results"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/statistics"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/host"
)

// The values of compare --format.
const (
	formatTable = "table"
	formatJSONL = "jsonl"
	formatSide  = "side"
)

func compareCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "compare RUN RUN",
		Short: "Compare the answers of two ended runs",
		Long: "Compares two ended runs item by item: which settings and which answers differ, how often they agree, their\n" +
			"lengths, scores and costs. Runs of the same input file are matched by the index of the items, and others by\n" +
			"the ids of the lines.\n\n" +
			runHelp,
		Args: arguments(0, "RUN", "RUN"),
	}
	location := locationFlags(c)
	o := compareOptions{}
	c.Flags().StringVar(&o.format, "format", formatTable,
		"`format`: table; jsonl, an item per line; or side, side by side")
	c.Flags().BoolVar(&o.all, "all", false, "with jsonl and side: also items whose answers are the same")
	c.Flags().IntVarP(&o.limit, "limit", "n", 20, "with side: at most so many items; 0 is all")
	by := c.Flags().String("by", "", "match items by index or id (default: what suits the runs)")
	c.Flags().BoolVar(&o.json, "json", false, "print the totals as one JSON object")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		switch o.format {
		case formatTable, formatJSONL, formatSide:
		default:
			return usage(c, "--format is %q: use table, jsonl or side", o.format)
		}
		if o.json && o.format != formatTable {
			return usage(c, "--json prints the totals: use it without --format %s", o.format)
		}
		if o.limit < 0 {
			return usage(c, "--limit is %d: use 0 or more", o.limit)
		}
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		service := api.New(in.Ports, in.Deployment, in.Profile)
		var runs [2]compare.Run
		for i, text := range args {
			if runs[i], err = comparable(c.Context(), in.Ports, service, text); err != nil {
				return err
			}
		}
		if id := runs[0].Manifest.Run; id == runs[1].Manifest.Run {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s and %s are the same run, %s", args[0], args[1], id),
				Remedy: "a name selects its newest run: name the other one by its id, which `rollout status --all` shows"}
		}
		return e.compare(c.Context(), in.Ports.Blobs, runs[0], runs[1], compare.How(*by), o)
	}
	return c
}

// comparable finds a run that has ended, with its summary.
func comparable(ctx context.Context, p host.Ports, service *api.Service, text string) (r compare.Run, err error) {
	s, err := findRun(ctx, service, text)
	if err != nil {
		return r, err
	}
	if !s.Phase.Ended() {
		return r, &fault.Error{Kind: fault.Unavailable, Remedy: "compare it when it has ended",
			Err: fmt.Errorf("run %s has not ended: it is %s", s.Run, progress.FormatPhase(s.Phase))}
	}
	r, err = endedRun(ctx, p, s.Run)
	if fault.Is(err, fault.NotFound) {
		err = &fault.Error{Kind: fault.Unavailable,
			Err:    fmt.Errorf("run %s has no summary: it was refused, or its files are gone", s.Run),
			Remedy: "compare other runs, or restore the files from a backup"}
	}
	return r, err
}

// endedRun reads the manifest and the summary of a run. It is NotFound without a summary.
func endedRun(ctx context.Context, p host.Ports, id identity.RunID) (r compare.Run, err error) {
	if r.Manifest, err = host.LoadManifest(ctx, p.Docs, id); err != nil {
		return r, err
	}
	files, err := results.Load(ctx, p.Blobs, id)
	r.Summary = files.Summary
	return r, err
}

// compareOptions say what a comparison prints.
type compareOptions struct {
	format    string
	all, json bool
	limit     int
}

func (e *Env) compare(ctx context.Context, blobs blob.Store, a, b compare.Run, by compare.How, o compareOptions) error {
	t, err := compare.NewTotals(a, b)
	if err != nil {
		return err
	}
	columns, _, ok := terminal.Size(e.Out)
	if !ok {
		columns = 120
	}
	enc := json.NewEncoder(e.Out)
	enc.SetEscapeHTML(false)
	shown := 0
	how, err := compare.Compare(ctx, blobs, a, b, compare.Options{By: by}, func(p compare.Pair) error {
		t.Add(p)
		switch {
		case p.Same && !o.all:
			return nil
		case o.format == formatJSONL:
			return enc.Encode(p)
		case o.format == formatSide && (o.limit == 0 || shown < o.limit):
			shown++
			_, err := io.WriteString(e.Out, sideBySide(p, columns, e.palette(e.Out)))
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.End(how)
	switch {
	case o.json:
		return enc.Encode(t)
	case o.format == formatJSONL:
		err = e.say("%s", agreement(t))
	default:
		_, err = io.WriteString(e.Out, totalsTable(t, columns, e.palette(e.Out)))
	}
	return err
}

// agreement is the first line of a comparison.
func agreement(t *compare.Totals) string {
	what := "their index: the runs read the same input"
	if t.MatchedBy == compare.ByID {
		what = "the ids of their lines"
	}
	text := fmt.Sprintf("%s in both runs, matched by %s", figures.Of(t.Items, "item"), what)
	if t.Agreement != nil {
		text += fmt.Sprintf("; of %s, %s (%s) are the same", figures.OfMany(t.Same+t.Differ, "pair of answers",
			"pairs of answers"), progress.Count(t.Same), progress.Percent(t.Same, t.Same+t.Differ))
	}
	return text
}

// totalsTable formats the totals.
func totalsTable(t *compare.Totals, columns int, colours terminal.Palette) string {
	number := func(v *float64, format string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	count := progress.Count
	name := func(s compare.Side) string { return progress.SanitizeLine(s.Name, nameColumns) }
	rows := [][]string{
		{"", "first", "second"},
		{"run", string(t.A.Run), string(t.B.Run)},
		{"name", name(t.A), name(t.B)},
		{"model", progress.SanitizeLine(t.A.Model, maxValue), progress.SanitizeLine(t.B.Model, maxValue)},
	}
	for _, v := range t.Settings {
		rows = append(rows, []string{v.Key, valueCell(v.A), valueCell(v.B)})
	}
	rows = append(rows, [][]string{
		{"answered", count(t.A.Answered), count(t.B.Answered)},
		{"failed", count(t.A.Failed), count(t.B.Failed)},
		{"answered, and failed in the other", count(t.A.AnsweredOnly), count(t.B.AnsweredOnly)},
		{"items that the other lacks", count(t.A.Only), count(t.B.Only)},
		{"cut at the length limit", count(t.A.Cut), count(t.B.Cut)},
		{"mean characters", number(t.A.Characters, "%.1f"), number(t.B.Characters, "%.1f")},
		{"mean completion tokens", number(t.A.Tokens, "%.1f"), number(t.B.Tokens, "%.1f")},
	}...)
	if t.Scored > 0 {
		rows = append(rows, []string{"mean score", number(t.A.Score, "%.4f"), number(t.B.Score, "%.4f")},
			[]string{"higher score", count(t.Worse), count(t.Better)})
	}
	if t.A.CostUSD > 0 || t.B.CostUSD > 0 {
		rows = append(rows, []string{"cost", figures.Dollars(t.A.CostUSD), figures.Dollars(t.B.CostUSD)})
	}
	return colours.In(terminal.Bold, agreement(t)) + "\n" +
		terminal.Table(rows, colours, func(_, _ int, cell string) string { return cell }) + gainText(t, columns)
}

// gainText says what the scores of both runs show, as lines; "" if that is nothing.
func gainText(t *compare.Totals, columns int) string {
	g := t.Gain
	if g == nil || g.P == nil {
		return ""
	}
	way, gain := "higher by", g.Mean
	if gain < 0 {
		way, gain = "lower by", -gain
	}
	test := "paired t-test"
	if g.Test == statistics.TestMcNemar {
		test = "McNemar's exact test"
	}
	interval := ""
	if g.Low != nil {
		low, high := *g.Low, *g.High
		if g.Mean < 0 {
			low, high = -high, -low
		}
		interval = fmt.Sprintf("95%% interval: %.4f to %.4f; ", low, high)
	}
	text := fmt.Sprintf("The scores of the second run are %s %.4f on average (%s%s: P = %.2g).",
		way, gain, interval, test, *g.P)
	switch {
	case t.Better+t.Worse == 0:
		text = "Each item has the same score in both runs."
	case *g.P <= 1-compare.GainConfidence:
		text += " Chance alone seldom gives such a difference."
	default:
		text += fmt.Sprintf(" Chance alone gives such a difference in %d of 100 cases.", int(math.Round(*g.P*100)))
		if g.Detectable != nil {
			text += fmt.Sprintf(" With %s, one below %.4f is easily missed.", figures.Of(t.Scored, "item"), *g.Detectable)
		}
	}
	return strings.Join(terminal.Wrap(text, columns), "\n") + "\n"
}

// maxValue is the widest value in a table, in columns.
const maxValue = 40

// valueCell formats the value of a setting; "-" for one that the config does not say.
func valueCell(text string) string { return progress.SanitizeLine(cmp.Or(text, "-"), maxValue) }

// minColumn is the narrowest column of two texts side by side.
const minColumn = 20

// sideBySide formats an item with what both runs have of it.
func sideBySide(p compare.Pair, columns int, colours terminal.Palette) string {
	item := p.A
	if item == nil {
		item = p.B
	}
	width := max(minColumn, (columns-3)/2)
	left, right := cell(p.A, width), cell(p.B, width)
	var b strings.Builder
	title := progress.SanitizeLine(fmt.Sprintf("item %d (%s)", item.Item, p.ID), columns)
	b.WriteString(colours.In(terminal.Bold, title) + "\n")
	for i := range max(len(left), len(right)) {
		l, r := "", ""
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		b.WriteString(strings.TrimRight(runewidth.FillRight(l, width)+" │ "+r, " ") + "\n")
	}
	b.WriteString("\n")
	return b.String()
}

// maxCell bounds the lines of a text side by side.
const maxCell = 60

// cell returns the lines of what a run has of an item.
func cell(r *compare.Row, width int) (lines []string) {
	switch {
	case r == nil:
		return []string{"(the run lacks it)"}
	case r.Class != "":
		return breakLines("failed ("+string(r.Class)+"): "+r.Error, width)
	}
	for i, text := range r.Answers {
		if i > 0 {
			lines = append(lines, strings.Repeat("-", min(width, 10)))
		}
		lines = append(lines, breakLines(text, width)...)
	}
	if r.Score != nil {
		lines = append(lines, fmt.Sprintf("score %.4g", *r.Score))
	}
	return lines
}

// breakLines breaks a text into lines of that width, and leaves out what is beyond maxCell.
func breakLines(text string, width int) (lines []string) {
	for l := range strings.SplitSeq(text, "\n") {
		for _, l := range terminal.Wrap(progress.SanitizeLine(l, 64<<10), width) {
			for _, l := range strings.Split(runewidth.Wrap(l, width), "\n") { // a word may be wider
				if len(lines) == maxCell {
					return append(lines, "…")
				}
				lines = append(lines, l)
			}
		}
	}
	return lines
}
