package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// Parent makes a run the child of an ended run. A child has its parent's plan, so
// that item indexes, ids and seeds are the same. It asks the selected items again
// and keeps the rows of all others, so that its output files are complete. A child with an
// Amend keeps all rows, and asks the items that it adds.
type Parent struct {
	Run       identity.RunID `json:"run"`
	Selection Selection      `json:"selection"`
	Amend     *Amendment     `json:"amend,omitempty"`
	// Set are the settings with which the selected items are asked, over those of the
	// parent's config: see config.Run.Set.
	Set []string `json:"set,omitempty"`
}

// String says what the child does. Example: "retries run 01JD2ZQ4T5W0M1X9YB7R3K8CVE: failed".
func (p Parent) String() string {
	if p.Amend != nil {
		return fmt.Sprintf("amends run %s: %s", p.Run, p.Amend)
	}
	return fmt.Sprintf("retries run %s: %s", p.Run, p.Selection)
}

// Masked returns the parent without settings that may be keys or prompts; nil for nil.
func (p *Parent) Masked() *Parent {
	if p == nil || len(p.Set) == 0 {
		return p
	}
	out := *p
	out.Set = config.MaskSettings(p.Set)
	return &out
}

// Selection says which items of the parent a child asks again.
type Selection struct {
	// Only names them by their rows: SelectFailed, SelectUnanswered, SelectUnscored, SelectAll, or
	// classes of failures.
	Only []string `json:"only,omitempty"`
	// Finish names answered items by the finish reason of an answer, as the server gave
	// it, or shard.FinishNone.
	Finish []string `json:"finish_reasons,omitempty"`
	// Items are further ones by their indexes, at most MaxSelected ranges.
	Items interval.Set `json:"items,omitzero"`
}

// The words of Selection.Only besides classes.
const (
	SelectFailed     = "failed"     // every item with an error row, but for pruned ones
	SelectUnanswered = "unanswered" // those that the parent's end left without a row of their own
	// SelectUnscored are the items that have no score though nothing is wrong with them: graders
	// gave none, or a server, a worker or the run ended first.
	SelectUnscored = "unscored"
	SelectAll      = "all"
)

// MaxSelected bounds the ranges of Selection.Items, and maxFinish and maxReason the number
// and the bytes of Selection.Finish: manifests stay small.
const (
	MaxSelected = 4096
	maxFinish   = 16
	maxReason   = 64
)

// SelectsRow reports whether the child asks an item again whose row in the parent's files
// has the class; "" is an answer.
func (s Selection) SelectsRow(item uint64, class fault.Class, d dialect.Name, row []byte) bool {
	return s.Selects(item, class) || class == "" && s.SelectsAnswer(d, row)
}

// ReadsAnswers reports whether the selection depends on what is in the rows of answers.
func (s Selection) ReadsAnswers() bool {
	return len(s.Finish) > 0 || slices.Contains(s.Only, SelectUnscored)
}

// SelectsAnswer reports whether the child asks an item again because of what is in the row of
// its answer.
func (s Selection) SelectsAnswer(d dialect.Name, row []byte) bool {
	if len(s.Finish) > 0 && dialect.HasFinishReason(d, row, s.Finish) {
		return true
	}
	if !slices.Contains(s.Only, SelectUnscored) {
		return false
	}
	scores, err := grade.ReadRow(row)
	return err == nil && scores.Score == nil // rows without graders have no scores
}

// Selects is SelectsRow without a look at the row of an answer.
func (s Selection) Selects(item uint64, class fault.Class) bool {
	for _, w := range s.Only {
		switch {
		case w == SelectAll:
			return true
		case class == "":
		case w == SelectFailed && class != fault.Pruned, w == string(class),
			w == SelectUnanswered && class.Unanswered(),
			w == SelectUnscored && !class.OfItem() && class != fault.Pruned:
			return true
		}
	}
	return s.Items.Has(int(item))
}

// SelectsAll reports whether the child asks every item again.
func (s Selection) SelectsAll() bool { return slices.Contains(s.Only, SelectAll) }

// Check returns Invalid for a selection that no item can match.
func (s Selection) Check() error {
	known := []string{SelectFailed, SelectUnanswered, SelectUnscored, SelectAll}
	for _, c := range fault.Classes {
		known = append(known, string(c))
	}
	for _, w := range s.Only {
		if !slices.Contains(known, w) {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.64q selects no item", w),
				Remedy: "use " + strings.Join(known, ", ")}
		}
	}
	if n := len(s.Items.Ranges()); n > MaxSelected {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%d ranges of items are selected", n),
			Remedy: fmt.Sprintf("select at most %d ranges in one run", MaxSelected)}
	}
	if len(s.Finish) > maxFinish {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%d finish reasons are selected", len(s.Finish)),
			Remedy: fmt.Sprintf("select at most %d in one run", maxFinish)}
	}
	for _, r := range s.Finish {
		if r == "" || len(r) > maxReason {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%.64q is not a finish reason", r),
				Remedy: "use one that `rollout status RUN` shows, such as length, or none"}
		}
	}
	if len(s.Only) == 0 && s.Items.Len() == 0 && len(s.Finish) == 0 {
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("no item is selected"),
			Remedy: "use " + strings.Join(known, ", ")}
	}
	return nil
}

// String renders the selection for people. Example: "failed, items 3-5".
func (s Selection) String() string {
	parts := slices.Clone(s.Only)
	for _, r := range s.Finish {
		parts = append(parts, "finish reason "+r)
	}
	for i, r := range s.Items.Ranges() {
		switch {
		case i == 8:
			return strings.Join(append(parts, "…"), ", ")
		case r.Len() == 1:
			parts = append(parts, fmt.Sprintf("item %d", r.Lo))
		default:
			parts = append(parts, fmt.Sprintf("items %d-%d", r.Lo, r.Hi-1))
		}
	}
	return strings.Join(parts, ", ")
}
