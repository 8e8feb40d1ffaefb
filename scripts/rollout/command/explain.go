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
	"rollout/shared/core/identity"
)

func explainCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain RUN [ITEM]",
		Short: "Tell why a run is slow or stuck, or where one of its items is",
		Long: "Tells what happened to a run, what holds it up or bounds its speed, and what happens next; or that of one item.\n\n" +
			"RUN is a run's id, an unambiguous beginning of it, or a name: then the newest run of that name.\n" +
			"ITEM is the id in its line, an item id (in hex), '#' and its index from 0, or FILE:LINE. What the plan does not\n" +
			"know is looked for by reading the input, which takes its time for a large one.",
		Args: arguments(1, "RUN", "ITEM"),
	}
	place := placeFlags(c)
	asJSON := c.Flags().Bool("json", false, "print it as one JSON object")
	events := c.Flags().String("events-file", "", "also show what this `file`, written by --events-file, says of the item or run")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *place, args[0])
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

// printExplanation writes the explanation for people.
func (e *Env) printExplanation(ctx context.Context, x diagnosis.Explanation, r *chosen, events string) error {
	s := statusView{Env: e, only: x.Run.Run, place: r.Location, path: r.Path}
	t := explanationPrinter{screen: s.screen(api.Overview{Runs: []status.Status{x.Run}, Workers: x.Workers, Queues: x.Queues}, nil), x: x}
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
		t.head("what " + events + " says (the last " + fmt.Sprint(len(lines)) + " lines):")
		for _, l := range lines {
			t.line("  ", progress.SanitizeLine(l, 2000))
		}
	}
	_, err := io.WriteString(e.Out, t.b.String())
	return err
}

// explanationPrinter renders an explanation.
type explanationPrinter struct {
	screen
	x diagnosis.Explanation
	b strings.Builder
}

// line writes a text under an indent, broken where the terminal is narrow.
func (t *explanationPrinter) line(indent, text string) {
	lines := []string{text}
	if t.columns > 0 {
		lines = wrap(text, max(20, t.columns-len(indent)))
	}
	for i, l := range lines {
		if i > 0 {
			indent = strings.Repeat(" ", len([]rune(indent)))
		}
		t.b.WriteString(indent + l + "\n")
	}
}

func (t *explanationPrinter) head(text string) { t.b.WriteString(t.colours.in(bold, text) + "\n") }

// list writes texts from elsewhere, one a line, with commands to copy.
func (t *explanationPrinter) list(texts []string) {
	for _, text := range texts {
		t.line("  - ", t.here(progress.SanitizeLine(text, 2000)))
	}
}

func (t *explanationPrinter) run() {
	r := t.x.Run
	fmt.Fprintf(&t.b, "run %s (%s) %s: %s of %s items (%s)", r.Run, progress.SanitizeLine(r.Name, nameColumns), t.colours.phase(r.Phase, progress.FormatPhase(r.Phase)),
		progress.Count(r.Items.Processed()), progress.Count(r.Items.Total), progress.Percent(r.Items.Processed(), r.Items.Total))
	if r.Rate != nil {
		t.b.WriteString(", " + progress.FormatRate(r.Rate))
	}
	t.b.WriteString("\n")
	t.list(t.x.History)
	if len(t.x.Causes) > 0 {
		title := "why it is not done yet, or not faster:"
		if r.Phase.Ended() {
			title = "what went wrong:"
		}
		t.head(title)
	}
	for i, c := range t.x.Causes {
		t.line(fmt.Sprintf("  %d. ", i+1), t.here(progress.SanitizeLine(c.Text, 2000)))
		if c.Remedy != "" {
			t.line("     → ", t.here(progress.SanitizeLine(c.Remedy, 1000)))
		}
	}
	if len(t.x.Next) > 0 {
		t.head("what happens next:")
		t.list(t.x.Next)
	}
	if n := len(t.x.Shards); n > 0 {
		t.head(fmt.Sprintf("open shards (the first %d of %d):", n, t.x.OpenShards))
		for _, s := range t.x.Shards {
			t.line("  - ", progress.SanitizeLine(s.Describe(t.now), 1000))
		}
	}
	if w := t.workers(); w != "" && !r.Phase.Ended() {
		t.b.WriteString("\n" + w)
	}
	if q := t.queues(); q != "" && !r.Phase.Ended() {
		t.b.WriteString(q)
	}
}

func (t *explanationPrinter) items() {
	r := t.x.Run
	if len(t.x.Items) > 1 {
		t.head(fmt.Sprintf("%d lines have that id: the first is answered, the others are errors", len(t.x.Items)))
	}
	for _, it := range t.x.Items {
		fmt.Fprintf(&t.b, "item %d of run %s (%s): %s\n", it.Item, r.Run, progress.SanitizeLine(r.Name, nameColumns), t.itemState(it))
		t.list(it.History)
		if it.Next != "" {
			t.line("  next: ", t.here(progress.SanitizeLine(it.Next, 2000)))
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
		return t.colours.in(green, text)
	case it.State == diagnosis.Failed || it.State == diagnosis.NotProcessed:
		return t.colours.in(red, text+" ("+string(it.Class)+")")
	case it.Class != "":
		return t.colours.in(yellow, text+", will fail ("+string(it.Class)+")")
	}
	return t.colours.in(yellow, text)
}

// ids of what an explanation is about, for its events.
func about(x diagnosis.Explanation) (id identity.RunID, items, shards map[uint64]bool) {
	items, shards = map[uint64]bool{}, map[uint64]bool{}
	for _, it := range x.Items {
		items[it.Item] = true
		if it.Shard != nil {
			shards[uint64(it.Shard.Shard)] = true
		}
	}
	return x.Run.Run, items, shards
}
