package progress

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"rollout/functions/status"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/rollout"
	"rollout/shared/trials"
)

// OutcomeError describes how an ended run did not succeed completely.
type OutcomeError struct {
	Status status.Status
	text   string
}

func (e *OutcomeError) Error() string { return e.text }

// Outcome returns nil if the ended run has items and answered all that it did not prune, else an *OutcomeError. path
// returns where the user finds an object of the bucket.
func Outcome(s status.Status, path func(key string) string) error { return outcome(s, path, "") }

// OutcomeOfInstalled is Outcome for a run of an installation, which asks failed items again.
func OutcomeOfInstalled(s status.Status, path func(key string) string) error {
	if cmp.Or(s.Kind, config.KindBatch) != config.KindBatch {
		return outcome(s, path, "")
	}
	return outcome(s, path, retryAdvice(s))
}

// retryAdvice says what asks the items again that a batch did not answer. A retry does not correct lines.
func retryAdvice(s status.Status) string {
	bad := s.FailedByClass[string(fault.InvalidLine)] + s.FailedByClass[string(fault.DuplicateID)]
	switch left := int(s.Items.Failed) - bad; {
	case s.Items.Failed == 0:
		return ""
	case left <= 0:
		return "; correct the lines, and submit them in a file of their own"
	case bad > 0:
		return fmt.Sprintf("; `rollout retry %s` asks %s again: the lines that are invalid or have an id twice need a "+
			"correction", s.Run, figures.Of(left, "item"))
	}
	return fmt.Sprintf("; `rollout retry %s` asks them again", s.Run)
}

func outcome(s status.Status, path func(key string) string, retry string) error {
	text := ""
	switch {
	case s.Phase.Succeeded() && s.Items.Total == 0 && s.Kind == config.KindRollout:
		text = fmt.Sprintf("run %s has no tickets (its input has no lines)", s.Run)
	case s.Phase.Succeeded() && s.Items.Total == 0:
		text = fmt.Sprintf("run %s has no items (its input has no lines)", s.Run)
	case s.Phase.Succeeded():
		return nil
	case s.Phase == run.CompletedWithErrors && s.Items.AtFault() == 0 && s.Rollout != nil:
		text = fmt.Sprintf("run %s: %s (see %s)", s.Run, figures.Of(s.Rollout.Refused, "invalid line"),
			path(record.OutputKey(s.Run, rollout.FailuresFile)))
	case s.Phase == run.CompletedWithErrors:
		text = fmt.Sprintf("run %s: %s of %s failed (see %s%s)",
			s.Run, Count(s.Items.AtFault()), figures.Of(s.Items.Total, "item"), path(s.Errors), retry)
	case s.Phase == run.Paused || s.Phase == run.Interrupted:
		text = WithRemedy(fmt.Sprintf("run %s is paused: %s", s.Run, s.Message),
			fmt.Sprintf("`rollout resume %s` lets it go on", s.Run))
	default:
		text = fmt.Sprintf("run %s ended as %s", s.Run, FormatPhase(s.Phase))
		if s.Message != "" {
			text += ": " + s.Message
		}
		if retry != "" && s.Items.Unanswered > 0 {
			text = WithRemedy(text, fmt.Sprintf("`rollout retry %s --unanswered` asks what is left", s.Run))
		}
	}
	return &OutcomeError{s, text}
}

const (
	firstRows  = 3
	rowColumns = 100
	// errorColumns is the width of an error: the server's words come last in it.
	errorColumns = 240
	leastRow     = 20 // columns of a row on a very narrow terminal
	labelColumns = 14 // of the facts, with their indent
	indent       = "  "
	headBytes    = 64 << 10 // read from completions.jsonl for its first rows
)

// WriteSummary writes the result of an ended run to w: counts, speed, scores, the paths of its files and its first
// completions. path returns where the user finds an object of the bucket. On a terminal texts are wrapped at words;
// paths stay whole.
func WriteSummary(
	ctx context.Context, w io.Writer, s status.Status, bucket blob.Store, path func(key string) string,
) error {
	columns := terminal.Columns(w)
	b := bytes.NewBufferString(Headline(s, columns))
	line := func(name, text string) { b.WriteString(terminal.Fact("  "+name, labelColumns, text, columns)) }
	pathLine := func(name, key string) { b.WriteString(terminal.Fact("  "+name, labelColumns, path(key), 0)) }
	if s.Message != "" {
		line("reason", SanitizeLine(s.Message, 400))
	}
	if s.Items.AtFault() > 0 {
		line("failed", FormatFailed(s))
	}
	if s.Items.Unanswered > 0 {
		line("unanswered", FormatUnanswered(s))
	}
	if t := s.Training; t != nil {
		line("training", FormatTraining(s))
		if t.Snapshot != "" {
			line("snapshot", t.Snapshot)
		}
		if s.Phase.Succeeded() {
			pathLine("model", record.OutputKey(s.Run, record.ModelFile))
			pathLine("loss curve", record.OutputKey(s.Run, record.CurveFile))
		}
	}
	if s.Tokens != (status.Tokens{}) {
		line("tokens", FormatTokens(s.Tokens))
	}
	if s.HasFinishReasons() {
		line("finish", FormatFinishReasons(s))
	}
	if s.MostlyCut() {
		cut, err := readCut(ctx, bucket, s.Outputs)
		if err != nil {
			return err
		}
		line("cut", cut.text(s))
	}
	rows, err := readFirstRows(ctx, bucket, s.Outputs)
	switch {
	case fault.Is(err, fault.NotFound): // the run was refused and has no files
	case err != nil:
		return err
	default:
		var sum record.Summary
		if err := input.ReadJSON(ctx, bucket, s.Summary, &sum); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if scores := FormatScores(sum); scores != "" {
			line("scores", scores)
		}
		if sum.Trials != nil {
			for _, text := range FormatTrials(*sum.Trials) {
				line("variant", text)
			}
			pathLine("trials", record.OutputKey(s.Run, trials.TrialsFile))
		}
		if sum.Rollout != nil {
			line("tickets", FormatRollout(*sum.Rollout))
			if sum.Rollout.Stopped != "" {
				line("ended early", SanitizeLine(sum.Rollout.Stopped, 400))
			}
			for _, text := range FormatMissions(*sum.Rollout) {
				line("guidance", text)
			}
			pathLine("selections", record.OutputKey(s.Run, rollout.SelectionsFile))
			if sum.Rollout.Refused > 0 || len(sum.Rollout.Failed) > 0 {
				pathLine("failures", record.OutputKey(s.Run, rollout.FailuresFile))
			}
		}
		pathLine("completions", s.Outputs)
		if s.Items.Failed > 0 {
			pathLine("errors", s.Errors)
		}
		pathLine("summary", s.Summary)
	}
	if s.Items.AtFault() > 0 {
		samples, err := readFirstRows(ctx, bucket, s.Errors)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		for i, row := range samples {
			if i == 0 {
				b.WriteString("first errors:\n")
			}
			b.WriteString(terminal.Fact("", len(indent), SanitizeLine(row, errorColumns), columns))
		}
	}
	for i, row := range rows {
		if i == 0 {
			b.WriteString("first completions:\n")
		}
		shown := rowColumns
		if columns > 0 {
			shown = min(shown, max(leastRow, columns-len(indent)))
		}
		fmt.Fprintf(b, "%s%s\n", indent, SanitizeLine(row, shown))
	}
	_, err = w.Write(b.Bytes())
	return err
}

// Headline formats the result of an ended run in a sentence of that many columns, 0 being any number, with a newline:
// phase, counts, time and speed.
func Headline(s status.Status, columns int) string {
	text := fmt.Sprintf("run %s (%s) %s", s.Run, SanitizeLine(s.Name, nameColumns), FormatPhase(s.Phase))
	if s.Items.Total > 0 && s.Training == nil {
		text += fmt.Sprintf(": %s of %s answered", Count(s.Items.Done), figures.Of(s.Items.Total, "item"))
	}
	if s.StartedAt != nil && s.EndedAt != nil {
		text += " in " + FormatDuration(s.EndedAt.Sub(*s.StartedAt))
	}
	if s.Rate != nil {
		text += ", " + FormatRate(s.Rate)
	}
	return terminal.Sentences(text, columns) + "\n"
}

// ObjectPathIn returns a function that returns the path of an object of the bucket in folder dir.
func ObjectPathIn(dir string) func(key string) string {
	return func(key string) string { return filepath.Join(dir, filepath.FromSlash(key)) }
}

// FormatFailed formats the number of items that failed by their own fault: "10 (7 invalid_line, 3 too_long)".
func FormatFailed(s status.Status) string { return formatClasses(s, s.Items.AtFault(), false) }

// FormatUnanswered formats the number of items without an answer when the run ended early: "600 (600 canceled)".
func FormatUnanswered(s status.Status) string { return formatClasses(s, s.Items.Unanswered, true) }

func formatClasses(s status.Status, total uint64, unanswered bool) string {
	var parts []string
	for _, class := range fault.Classes {
		if n := s.FailedByClass[string(class)]; n > 0 && status.Unanswered(class) == unanswered {
			parts = append(parts, Count(uint64(n))+" "+string(class))
		}
	}
	if len(parts) == 0 {
		return Count(total)
	}
	return fmt.Sprintf("%s (%s)", Count(total), strings.Join(parts, ", "))
}

// FormatFinishReasons formats how the answers ended, the most frequent first: "390 stop, 10 length".
func FormatFinishReasons(s status.Status) string {
	reasons := slices.SortedFunc(maps.Keys(s.FinishReasons), func(a, b string) int {
		return cmp.Or(s.FinishReasons[b]-s.FinishReasons[a], strings.Compare(a, b))
	})
	var parts []string
	for _, r := range reasons {
		parts = append(parts, Count(uint64(s.FinishReasons[r]))+" "+r)
	}
	return strings.Join(parts, ", ")
}

// FormatTokens formats token counts: "4,000 in, 8,000 out, 12 wasted (5 of them
// estimated)".
func FormatTokens(t status.Tokens) string {
	text := Count(uint64(max(0, t.Prompt))) + " in, " + Count(uint64(max(0, t.Completion))) + " out"
	if t.Wasted > 0 {
		text += ", " + Count(uint64(t.Wasted)) + " wasted"
		switch {
		case t.WastedEstimated >= t.Wasted:
			text += " (estimated)"
		case t.WastedEstimated > 0:
			text += " (" + Count(uint64(t.WastedEstimated)) + " of them estimated)"
		}
	}
	return text
}

// readFirstRows reads the first rows of the object and formats them for display.
func readFirstRows(ctx context.Context, bucket blob.Store, key string) ([]string, error) {
	r, _, err := bucket.Get(ctx, key, blob.GetOptions{Length: headBytes})
	if err != nil {
		return nil, err
	}
	defer r.Close() // opened for reading: closing loses nothing
	var rows []string
	lines := bufio.NewReader(r)
	for len(rows) < firstRows {
		row, err := lines.ReadBytes('\n')
		if row = bytes.TrimSpace(row); len(row) > 0 {
			rows = append(rows, formatRow(row))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fault.Wrap(err, "read %s", key)
		}
	}
	return rows, nil
}

// formatRow formats an output row: id, prompt and completion of a row in the plain dialect, id and completion of a row
// in the OpenAI dialect. It returns other rows unchanged.
func formatRow(row []byte) string {
	var r struct {
		ID         rowID           `json:"id"`
		CustomID   rowID           `json:"custom_id"`
		Prompt     json.RawMessage `json:"prompt"`
		Messages   json.RawMessage `json:"messages"`
		Completion *string         `json:"completion"`
		Class      string          `json:"class"`
		Error      json.RawMessage `json:"error"`
		Response   struct {
			Body struct {
				Choices []struct {
					Text    string
					Message struct{ Content string }
				}
			}
		}
	}
	if json.Unmarshal(row, &r) != nil {
		return string(row)
	}
	const idColumns = 24
	if r.Completion != nil {
		return SanitizeLine(string(r.ID), idColumns) + "  " +
			formatPrompt(r.Prompt, r.Messages) + strings.TrimSpace(*r.Completion)
	}
	if text := formatError(r.Class, r.Error); text != "" {
		return SanitizeLine(string(cmp.Or(r.ID, r.CustomID)), idColumns) + "  " + text
	}
	if cs := r.Response.Body.Choices; len(cs) > 0 {
		return SanitizeLine(string(r.CustomID), idColumns) + "  " + cs[0].Message.Content + cs[0].Text
	}
	return string(row)
}

// formatError returns the class and the message of an error row, which is a text or an object with both; "" if it is
// neither.
func formatError(class string, raw json.RawMessage) string {
	var message string
	if json.Unmarshal(raw, &message) != nil {
		var e struct{ Code, Message string }
		if json.Unmarshal(raw, &e) != nil || e.Message == "" {
			return ""
		}
		class, message = e.Code, e.Message
	}
	if message == "" {
		return ""
	}
	return class + ": " + message
}

// rowID is the id of a row, which may be a string or a number, as text.
type rowID string

func (id *rowID) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	*id = rowID(text)
	return nil
}

// formatPrompt returns the prompt, or the content of the last message, truncated and followed by an arrow. It returns
// "" if that is not text.
func formatPrompt(prompt, messages json.RawMessage) string {
	const columns = 40
	var text string
	if json.Unmarshal(prompt, &text) != nil {
		var turns []struct {
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(messages, &turns) != nil || len(turns) == 0 ||
			json.Unmarshal(turns[len(turns)-1].Content, &text) != nil {
			return ""
		}
	}
	return SanitizeLine(strings.TrimSpace(text), columns) + " → "
}
