package progress

import (
	"fmt"
	"io"
	"time"

	"rollout/functions/status"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/clock"
)

// nameColumns is the maximum width of a name next to a bar.
const nameColumns = 24

// NewView returns a View with a bar if w is a terminal that can draw it, else a View of plain lines.
func NewView(w io.Writer, c clock.Clock, colours terminal.Palette) View {
	if terminal.SupportsDrawing(w) {
		return newBar(w, colours)
	}
	return NewLines(w, c)
}

// NewLines returns a View of plain lines.
func NewLines(w io.Writer, c clock.Clock) View { return &lines{w: w, clock: c} }

// bar is a View with a bar on a terminal.
type bar struct {
	*terminal.Progress
	colours terminal.Palette
}

func newBar(w io.Writer, colours terminal.Palette) *bar {
	b := &bar{terminal.NewProgress(w, colours), colours}
	b.Show(terminal.Task{Name: "waiting for the run to begin"})
	return b
}

// Update implements View.
func (b *bar) Update(s status.Status, p Pace) { b.Show(task(s, p, b.colours)) }

// Note implements View.
func (b *bar) Note(text string) { b.Print(SanitizeLine(text, maxNote)) }

// maxNote is how much of a note is shown.
const maxNote = 1000

// task returns what a bar tells about a run.
func task(s status.Status, p Pace, colours terminal.Palette) terminal.Task {
	t := terminal.Task{Name: SanitizeLine(s.Name, nameColumns) + " " + ColourPhase(colours, s.Phase, FormatPhase(s.Phase))}
	t.Done, t.All = DoneAndTotal(s)
	if s.Training != nil {
		t.Facts = trainingFacts(s)
		return t
	}
	t.Failed = s.Items.AtFault()
	if s.Items.Total > 0 {
		t.Facts = append(t.Facts, Count(s.Items.Processed())+" of "+allItems(s))
	}
	if t.Failed > 0 {
		t.Facts = append(t.Facts, Count(t.Failed)+" failed")
	}
	t.Facts = append(t.Facts, stageFacts(s)...)
	if p.Rate != nil {
		t.Facts = append(t.Facts, FormatRate(p.Rate))
	}
	if p.ETASeconds != nil && !s.Phase.Ended() {
		t.Facts = append(t.Facts, "ETA "+FormatETA(p.ETASeconds))
	}
	return t
}

// allItems formats the number of items, with a plus while more may be planned.
func allItems(s status.Status) string {
	if !s.Items.Planned && !s.Phase.Ended() && len(s.Roles) == 0 {
		return Count(s.Items.Total) + "+"
	}
	return Count(s.Items.Total)
}

// stageFacts returns how far a rollout is in its batches, trials in their looks, or a run in what its
// judges are asked.
func stageFacts(s status.Status) (facts []string) {
	if l := s.Looks; l != nil {
		facts = []string{fmt.Sprintf("look %d/%d", l.Decided, l.Of)}
		if n := uint64(len(l.Pruned)); n > 0 {
			facts = append(facts, Count(n)+" pruned")
		}
		return facts
	}
	if r := s.Rollout; r != nil && r.Batch > 0 {
		text := fmt.Sprintf("batch %d/%d", r.Batch, r.Batches)
		if r.Stage != "" && r.Stage != "answer" {
			text += " " + r.Stage
		}
		return []string{text}
	}
	if judged, of := judged(s); of > 0 && s.Rollout == nil {
		return []string{fmt.Sprintf("judged %s/%s", Count(judged), Count(of))}
	}
	return nil
}

// formatStatus formats counts and pace: "1,200/5,000 24% 3 failed 85.2/s ETA 45s". It returns "" before the run starts.
func formatStatus(s status.Status, p Pace) string {
	if s.Run == "" {
		return ""
	}
	if s.Training != nil {
		return FormatTraining(s)
	}
	text := fmt.Sprintf("%s/%s %s", Count(s.Items.Processed()), allItems(s), Percent(s.Items.Processed(), s.Items.Total))
	if n := s.Items.AtFault(); n > 0 {
		text += " " + Count(n) + " failed"
	}
	for _, fact := range stageFacts(s) {
		text += " " + fact
	}
	if p.Rate != nil {
		text += " " + FormatRate(p.Rate)
	}
	if p.ETASeconds != nil {
		text += " ETA " + FormatETA(p.ETASeconds)
	}
	return text
}

// lineInterval is the time between two lines while the phase does not change.
const lineInterval = 5 * time.Second

// lines is a View for files and pipes. It writes a line every few seconds and at every change of phase.
type lines struct {
	w     io.Writer
	clock clock.Clock
	phase string    // of the last line
	shown string    // text of the last line
	next  time.Time // earliest time of the next line in the same phase
}

func (l *lines) Update(s status.Status, p Pace) {
	now := l.clock.Now()
	text := formatStatus(s, p)
	if FormatPhase(s.Phase) == l.phase && (now.Before(l.next) || text == l.shown) {
		return
	}
	l.phase, l.next, l.shown = FormatPhase(s.Phase), now.Add(lineInterval), text
	l.Note(fmt.Sprintf("%s %s %s", s.Run, l.phase, text))
}

func (l *lines) Note(text string) {
	_, _ = fmt.Fprintln(l.w, SanitizeLine(text, maxNote)) // the run continues even if its log cannot be written
}

func (l *lines) Close() {}
