package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/identity"
	"rollout/shared/figures"
)

func explainCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain RUN [ITEM]",
		Short: "Explain why a run is slow or stuck, or what happened to an item",
		Long: "Explains what happened to a run, what blocks it or limits its speed, and what happens next; or the same\n" +
			"for one item.\n\n" + runHelp + "\n" +
			"ITEM is the id in its line, an item id in hex, #INDEX (from 0) or FILE:LINE (from 1). An item that is not in\n" +
			"the plan is searched in the input, which takes a while if that is large.",
		Args: arguments(1, "RUN", "ITEM"),
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print a JSON object")
	events := c.Flags().String("events-file", "",
		"also show the events of the run or item in this `file`, which --events-file of rollout up wrote")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		item := ""
		if len(args) > 1 {
			item = args[1]
		}
		x, err := r.service.Explain(c.Context(), r.run.Run, item)
		if err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(e.Out).Encode(x)
		}
		return e.printExplanation(c.Context(), x, r, *events)
	}
	return c
}

// printExplanation writes the explanation as text.
func (e *Env) printExplanation(ctx context.Context, x diagnosis.Explanation, r *selectedRun, events string) error {
	s := statusView{Env: e, only: x.Run.Run, location: r.Location, path: r.Path}
	o := api.Overview{Runs: []status.Status{x.Run}, Workers: x.Workers, Queues: x.Queues}
	t := explanationPrinter{screen: s.screen(o, nil), x: x}
	if len(x.Items) > 0 {
		t.items()
	} else {
		t.run()
	}
	if events != "" {
		lines, err := eventsOf(ctx, events, x)
		if err != nil {
			return err
		}
		t.head(fmt.Sprintf("events in %s (the last %d):", events, len(lines)))
		for _, l := range lines {
			t.line("  ", progress.SanitizeLine(l, 2000))
		}
	}
	_, err := io.WriteString(e.Out, t.b.String())
	return err
}

// explanationPrinter formats an explanation as text.
type explanationPrinter struct {
	screen
	x diagnosis.Explanation
	b strings.Builder
}

// line writes an indented text, wrapped to the width of the terminal.
func (t *explanationPrinter) line(indent, text string) {
	lines := []string{text}
	if t.columns > 0 {
		lines = terminal.Wrap(text, max(20, t.columns-len(indent)))
	}
	for i, l := range lines {
		if i > 0 {
			indent = strings.Repeat(" ", len([]rune(indent)))
		}
		t.b.WriteString(indent + l + "\n")
	}
}

func (t *explanationPrinter) head(text string) {
	t.b.WriteString(t.colours.In(terminal.Bold, text) + "\n")
}

// list writes sanitized texts, one per line, with commands that users can copy.
func (t *explanationPrinter) list(texts []string) {
	for _, text := range texts {
		t.line("  - ", t.withFlags(progress.SanitizeLine(text, 2000)))
	}
}

func (t *explanationPrinter) run() {
	r := t.x.Run
	fmt.Fprintf(&t.b, "run %s (%s) %s: %s of %s (%s)",
		r.Run, progress.SanitizeLine(r.Name, nameColumns),
		progress.ColourPhase(t.colours, r.Phase, progress.FormatPhase(r.Phase)),
		figures.Count(r.Items.Processed()), figures.Of(r.Items.Total, "item"),
		progress.Percent(r.Items.Processed(), r.Items.Total))
	if rate := t.pace(r).Rate; rate != nil {
		t.b.WriteString(", " + progress.FormatRate(rate))
	}
	t.b.WriteString("\n")
	t.list(t.x.History)
	if len(t.x.Causes) > 0 {
		title := "why it is not done or not faster:"
		if r.Phase.Ended() {
			title = "what went wrong:"
		}
		t.head(title)
	}
	for i, c := range t.x.Causes {
		t.line(fmt.Sprintf("  %d. ", i+1), t.withFlags(progress.SanitizeLine(c.Text, 2000)))
		if c.Remedy != "" {
			t.line("     → ", t.withFlags(progress.SanitizeLine(c.Remedy, 1000)))
		}
	}
	if len(t.x.Next) > 0 {
		t.head("what happens next:")
		t.list(t.x.Next)
	}
	if n := len(t.x.Shards); n > 0 {
		t.head(fmt.Sprintf("open shards (the first %s of %s):", figures.Count(n), figures.Count(t.x.OpenShards)))
		for _, s := range t.x.Shards {
			t.line("  - ", progress.SanitizeLine(s.Describe(t.now), 1000))
		}
	}
	if w, _ := t.workers(); w != "" && !r.Phase.Ended() {
		t.b.WriteString("\n" + w)
	}
	if q := t.queues(); q != "" && !r.Phase.Ended() {
		t.b.WriteString(q)
	}
}

func (t *explanationPrinter) items() {
	r := t.x.Run
	if len(t.x.Items) > 1 {
		t.head(figures.Of(len(t.x.Items), "line") + " have that id: the first is answered, the others are errors")
	}
	for _, it := range t.x.Items {
		fmt.Fprintf(&t.b, "item %d of run %s (%s): %s\n",
			it.Item, r.Run, progress.SanitizeLine(r.Name, nameColumns), t.itemState(it))
		t.list(it.History)
		if it.Next != "" {
			t.line("  next: ", t.withFlags(progress.SanitizeLine(it.Next, 2000)))
		}
		if it.Row != nil {
			t.line("  row: ", t.path(it.Row.Key)+strings.TrimPrefix(it.Row.String(), it.Row.Key))
		}
	}
}

func (t *explanationPrinter) itemState(it diagnosis.ItemReport) string {
	text := strings.ReplaceAll(string(it.State), "_", " ")
	switch {
	case it.State == diagnosis.Answered || it.State == diagnosis.Checkpointed:
		return t.colours.In(terminal.Green, text)
	case it.State == diagnosis.Failed || it.State == diagnosis.NotProcessed:
		return t.colours.In(terminal.Red, text+" ("+string(it.Class)+")")
	case it.Class != "":
		return t.colours.In(terminal.Yellow, text+", will fail ("+string(it.Class)+")")
	}
	return t.colours.In(terminal.Yellow, text)
}

// subjectOf returns the run, the items and the items' shards that an explanation is about.
func subjectOf(x diagnosis.Explanation) (id identity.RunID, items, shards map[uint64]bool) {
	items, shards = map[uint64]bool{}, map[uint64]bool{}
	for _, it := range x.Items {
		items[it.Item] = true
		if it.Shard != nil {
			shards[uint64(it.Shard.Shard)] = true
		}
	}
	return x.Run.Run, items, shards
}
