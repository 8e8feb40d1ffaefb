package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/figures"
)

func showCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "show RUN ITEM",
		Short: "Show the request, the answer and the scores of one item",
		Long: "Shows what is sent for an item of RUN, what came back, its scores, tokens and attempts. Headers and\n" +
			"secrets are never shown. The request is made of the run's config and the deployment's present [engine].\n\n" +
			runHelp + "\n" +
			"ITEM is the id in its line (custom_id in an OpenAI file), an item id in hex, an index (from 0; #INDEX if a line\n" +
			"has that number as its id) or FILE:LINE (from 1).",
		Args: arguments(0, "RUN", "ITEM"),
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print one JSON object for each item")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		run, items, err := r.service.ShowItem(c.Context(), r.run.Run, args[1])
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSONLines(e.Out, items)
		}
		s := statusView{Env: e, only: run.Run, location: r.Location, path: r.Path}
		t := itemPrinter{explanationPrinter{screen: s.screen(api.Overview{Runs: []status.Status{run}}, nil)}}
		t.x.Run = run
		for i, it := range items {
			if i > 0 {
				t.b.WriteString("\n")
			}
			t.item(it)
		}
		_, err = io.WriteString(e.Out, t.b.String())
		return err
	}
	return c
}

// writeJSONLines writes each value as a line of JSON. Text is as it is, without escapes for HTML.
func writeJSONLines[T any](w io.Writer, values []T) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, v := range values {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// maxShown bounds the lines of a text that is shown on a terminal; --json has all of it.
const maxShown = 400

// itemPrinter formats items with their requests and answers as text.
type itemPrinter struct{ explanationPrinter }

func (t *itemPrinter) item(it diagnosis.Shown) {
	r := t.x.Run
	fmt.Fprintf(&t.b, "item %d of run %s (%s): %s\n", it.Item, r.Run, progress.SanitizeLine(r.Name, nameColumns),
		t.itemState(it.ItemReport))
	t.fields(it)
	if q := it.Request; q != nil {
		t.head(fmt.Sprintf("request (%s):", requestPlace(*q)))
		t.text(indented(q.Body))
		if len(q.Seeds) > 1 {
			t.line("  ", progress.SanitizeLine(fmt.Sprintf("and %d more with the seeds %s", len(q.Seeds)-1,
				joinRaw(q.Seeds[1:])), 400))
		}
	}
	for i, a := range it.Answers {
		title := "answer"
		if len(it.Answers) > 1 {
			title = fmt.Sprintf("answer %d of %d", i+1, len(it.Answers))
		}
		if a.FinishReason != "" {
			title += " (" + progress.SanitizeLine(a.FinishReason, 64) + ")"
		}
		t.head(title + ":")
		t.text(a.Text)
	}
	t.scores(it)
	t.head("what happened:")
	t.list(it.History)
	if it.Next != "" {
		t.line("  next: ", t.withFlags(progress.SanitizeLine(it.Next, 2000)))
	}
}

// fields writes what is known of the item itself, one fact per line.
func (t *itemPrinter) fields(it diagnosis.Shown) {
	field := func(name, text string) {
		if text != "" {
			t.b.WriteString(t.fact(name, progress.SanitizeLine(text, 400)))
		}
	}
	field("id", it.ID)
	field("item id", it.ItemID)
	if it.File != "" {
		field("line", fmt.Sprintf("%s:%d", it.File, it.Line))
	}
	field("error", it.Why)
	if s := it.Shard; s != nil {
		field("attempts", fmt.Sprintf("%d (shard %d), the last by worker %s", s.Attempt, s.Shard, orNone(s.Worker)))
	}
	if it.GeneratedAt != nil {
		field("answered at", it.GeneratedAt.Format("2006-01-02 15:04:05 MST"))
	}
	if it.PromptTokens != nil {
		field("tokens", fmt.Sprintf("%s prompt, %s completion", progress.Count(uint64(*it.PromptTokens)),
			progress.Count(uint64(*it.CompletionTokens))))
	}
}

func (t *itemPrinter) scores(it diagnosis.Shown) {
	if it.Scores == nil {
		return
	}
	title := "scores:"
	if it.Score != nil {
		title = fmt.Sprintf("scores (of the row: %.4g):", *it.Score)
	}
	t.head(title)
	for _, name := range slices.Sorted(maps.Keys(it.Scores)) {
		s := it.Scores[name]
		value := "none"
		if s.Score != nil {
			value = fmt.Sprintf("%.4g", *s.Score)
		}
		if s.Cause != "" {
			value += " (" + string(s.Cause) + ")"
		}
		t.line("  ", progress.SanitizeLine(name+": "+value, 400))
	}
}

// text writes a text of several lines, sanitized and indented.
func (t *itemPrinter) text(text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		if i == maxShown {
			t.line("  ", "… "+figures.Of(len(lines)-i, "more line")+": see --json")
			return
		}
		own := l[:len(l)-len(strings.TrimLeft(l, " "))] // indent
		t.line("  "+own, progress.SanitizeLine(l, 64<<10))
	}
}

// indented returns JSON for people, as it is if it is not valid.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// requestPlace names where a request goes. Example: "chat".
func requestPlace(q diagnosis.ShownRequest) string {
	if q.Path != "" {
		return progress.SanitizeLine(q.Path, 200)
	}
	return string(q.Endpoint)
}

func joinRaw(values []json.RawMessage) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
