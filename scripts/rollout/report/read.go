package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/guidance"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/rollout"
	"rollout/shared/text"
)

// Run is an ended rollout.
type Run struct {
	Blobs    blob.Store
	Manifest record.Manifest
}

// maxListed bounds the rows of a list on the page.
const maxListed = 200

// reader has what was read of a run so far.
type reader struct {
	Run
	summary  record.Summary
	epochs   []rollout.Metrics
	missions map[string]*mission
	tickets  book
	hardest  list
	flipped  list
	review   []ticket
	reviews  map[string]int // by reason
	failures []failure
	causes   map[string]int
	changes  changes
	retries  retries
	texts    map[string]string // what was asked about tickets, by name; "" until it is known
	answers  map[string]string // the selected answers that the page shows, by id
	agree    [10]int           // tickets by agreement
	long     int               // rows that were too long to read
}

// mission sums up the tickets of a mission.
type mission struct {
	name     string
	steps    series
	batches  series
	starts   map[int]int // the first batch of a step
	verdicts map[string]*verdict
	promoted *guidance.Guidance // nil if the run ended before its first batch
	front    []rollout.FrontMember
}

// maxStarts bounds the steps whose first batch is marked in plots.
const maxStarts = 40

// verdict counts what answers said.
type verdict struct {
	Name     string
	Votes    int // answers
	Selected int // tickets
	Labels   int // tickets that have it as their label
	Right    int // selected, and the label
}

// maxVerdicts bounds the different verdicts of a mission that are counted; others are counted as one.
const maxVerdicts = 100

const otherVerdicts = "(others)"

func (m *mission) verdict(name string) *verdict {
	v := m.verdicts[name]
	if v == nil && len(m.verdicts) >= maxVerdicts {
		name = otherVerdicts
		v = m.verdicts[name]
	}
	if v == nil {
		v = &verdict{Name: short(name)}
		m.verdicts[name] = v
	}
	return v
}

// sortedVerdicts returns the verdicts, those with most votes first.
func (m *mission) sortedVerdicts() []verdict {
	var out []verdict
	for _, v := range m.verdicts {
		out = append(out, *v)
	}
	slices.SortFunc(out, func(x, y verdict) int {
		return cmp.Or(cmp.Compare(y.Votes, x.Votes), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// list is a list of tickets on the page.
type list struct {
	picks
	tickets map[ticketHash]*ticket
}

// retries count how often shards were handed on.
type retries struct{ Shards, Again int }

// answerRow is what is read of a row of trajectories.jsonl.
type answerRow struct {
	ID      string   `json:"id"`
	Mission string   `json:"mission"`
	Batch   int      `json:"batch"`
	Step    int      `json:"step"`
	Score   *float64 `json:"score"`
	Text    string   `json:"completion"`
	Usage   struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	} `json:"usage"`
}

// failure is a row of failures.jsonl: of an answer, or of an invalid line.
type failure struct {
	answerRow
	Line    uint64 `json:"line"`
	Group   string `json:"group_id"`
	Cause   string `json:"cause"`
	Message string `json:"message"`
}

// read reads the files of a run. NotFound means that it has none: it has not ended.
func read(ctx context.Context, run Run) (*reader, error) {
	r := &reader{Run: run, missions: map[string]*mission{}, tickets: newBook(), reviews: map[string]int{},
		causes: map[string]int{}, texts: map[string]string{}, answers: map[string]string{},
		changes: changes{results: map[resultKey]int{}, holdout: map[stepKey]rollout.Measure{}}}
	for _, m := range run.Manifest.Config.Missions {
		r.missions[m.Name] = &mission{name: m.Name, starts: map[int]int{}, verdicts: map[string]*verdict{}}
	}
	key := record.OutputKey(run.Manifest.Run, record.SummaryFile)
	if err := input.ReadJSON(ctx, run.Blobs, key, &r.summary); err != nil {
		return nil, err
	}
	// In this order: later files are searched for what earlier ones named.
	for _, step := range []func(context.Context) error{
		r.guidance, r.selections, r.listed, r.reviewed, r.reflections, r.fronts, r.trajectories, r.failed, r.metrics,
		r.attempts, r.prompts,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// guidance reads the promoted guidance of each mission.
func (r *reader) guidance(ctx context.Context) error {
	for _, m := range r.missions {
		g, err := rollout.ReadPromoted(ctx, r.Blobs, r.Manifest.Run, m.name)
		switch {
		case fault.Is(err, fault.NotFound):
		case err != nil:
			return err
		default:
			m.promoted = &g
		}
	}
	return nil
}

// of returns the mission of a row. Rows name missions of the config alone.
func (r *reader) of(name string) (*mission, bool) {
	m, ok := r.missions[name]
	return m, ok
}

// selections sums up all tickets, and decides which of them the page lists.
func (r *reader) selections(ctx context.Context) error {
	err := rows(ctx, r, rollout.SelectionsFile, func(row rollout.Selected) {
		m, ok := r.of(row.Mission)
		if !ok || min(row.Batch, row.Step) < 0 {
			return
		}
		m.steps.at(row.Step).ticket(row)
		m.batches.at(row.Batch).ticket(row)
		if _, known := m.starts[row.Step]; !known && len(m.starts) < maxStarts {
			m.starts[row.Step] = row.Batch
		}
		for _, v := range row.Votes {
			m.verdict(v.Answer).Votes += v.Count
		}
		if row.Label != nil {
			m.verdict(*row.Label).Labels++
		}
		if row.Verdict != nil {
			m.verdict(*row.Verdict).Selected++
			r.agree[min(9, max(0, int(row.Agreement*10)))]++
		}
		if row.LabelMatch != nil && *row.LabelMatch {
			m.verdict(*row.Verdict).Right++
		}
		r.tickets.visit(row)
	})
	r.hardest, r.flipped = list{picks: r.tickets.hardest()}, list{picks: r.tickets.flipped()}
	return err
}

// listed reads the rows of the tickets that the page lists.
func (r *reader) listed(ctx context.Context) error {
	lists := []*list{&r.hardest, &r.flipped}
	for _, l := range lists {
		l.tickets = map[ticketHash]*ticket{}
		for _, h := range l.order {
			l.tickets[h] = &ticket{}
		}
	}
	err := rows(ctx, r, rollout.SelectionsFile, func(row rollout.Selected) {
		h := r.tickets.hash(row)
		for _, l := range lists {
			if t := l.tickets[h]; t != nil {
				t.add(row)
			}
		}
	})
	for _, l := range lists {
		for _, t := range l.tickets {
			r.want(*t)
		}
	}
	return err
}

// want notes that the texts of a ticket and its answer are needed.
func (r *reader) want(t ticket) {
	if t.Name != "" {
		r.texts[t.Name], r.answers[t.id] = "", ""
	}
}

// reviewed reads the first tickets that a person shall look at, and counts all.
func (r *reader) reviewed(ctx context.Context) error {
	return rows(ctx, r, rollout.ReviewFile, func(row rollout.Selected) {
		r.reviews[string(row.Review)]++
		if len(r.review) < maxListed {
			t := ticket{Why: string(row.Review)}
			t.add(row)
			r.want(t)
			r.review = append(r.review, t)
		}
	})
}

// reflections reads what was learnt.
func (r *reader) reflections(ctx context.Context) error {
	if s := r.summary.Rollout; s != nil {
		for name, m := range s.Missions {
			if m.HoldoutAtStart != nil {
				r.changes.holdout[stepKey{name, 0}] = rollout.Measure{Tickets: m.HoldoutTickets, Score: *m.HoldoutAtStart}
			}
		}
	}
	if r.Manifest.Config.Reflection == nil { // the run has no such file
		return nil
	}
	err := rows(ctx, r, rollout.ReflectionFile, r.changes.add)
	for _, c := range r.changes.list() {
		for _, t := range c.Tickets {
			r.texts[t.Name] = ""
		}
	}
	return err
}

// fronts reads the newest front of each mission.
func (r *reader) fronts(ctx context.Context) error {
	if c := r.Manifest.Config.Reflection; c == nil || c.Pareto == 0 { // the run has no such file
		return nil
	}
	return rows(ctx, r, rollout.FrontsFile, func(row rollout.FrontRow) {
		if m, ok := r.of(row.Mission); ok {
			m.front, _ = first(row.Members, maxListed)
		}
	})
}

// trajectories sums up all answers, and keeps those that were selected of the tickets that the page lists.
func (r *reader) trajectories(ctx context.Context) error {
	return rows(ctx, r, rollout.TrajectoriesFile, func(row answerRow) {
		r.answer(row)
		if _, wanted := r.answers[row.ID]; wanted {
			r.answers[row.ID] = text.Truncate(row.Text, textBytes, "…")
		}
	})
}

// answer sums up an answer.
func (r *reader) answer(row answerRow) {
	if m, ok := r.of(row.Mission); ok && min(row.Batch, row.Step) >= 0 {
		m.steps.at(row.Step).answer(row)
		m.batches.at(row.Batch).answer(row)
	}
}

// failed counts the failures by cause, keeps the first ones, and sums up those that are answers without a verdict.
func (r *reader) failed(ctx context.Context) error {
	return rows(ctx, r, rollout.FailuresFile, func(row failure) {
		r.causes[short(row.Cause)]++
		if row.Cause == selection.Unparsable {
			r.answer(row.answerRow)
		}
		if len(r.failures) < maxListed {
			r.failures = append(r.failures, failure{answerRow{ID: short(row.ID), Text: text.Truncate(row.Text, textBytes, "…")},
				row.Line, text.Truncate(row.Group, nameBytes, "…"), short(row.Cause), text.Truncate(row.Message, textBytes, "…")})
		}
	})
}

func (r *reader) metrics(ctx context.Context) error {
	return rows(ctx, r, rollout.MetricsFile, func(row rollout.Metrics) {
		if len(r.epochs) < maxListed {
			r.epochs = append(r.epochs, row)
		}
	})
}

func (r *reader) attempts(ctx context.Context) error {
	return rows(ctx, r, rollout.AttemptsFile, func(row rollout.Attempt) {
		r.retries.Shards++
		if row.Attempt > 1 {
			r.retries.Again++
		}
	})
}

// idPrefix begins the rows of completions.jsonl.
var idPrefix = []byte(`{"id":"`)

// prompts finds what was asked about the tickets that the page names: the last message to the model.
func (r *reader) prompts(ctx context.Context) error {
	missing := len(r.texts)
	return r.lines(ctx, record.CompletionsFile, func(line []byte) (bool, error) {
		rest, ok := bytes.CutPrefix(line, idPrefix)
		name, _, dotted := bytes.Cut(rest[:min(len(rest), valueBytes)], []byte("."))
		if known, wanted := r.texts[string(name)]; !ok || !dotted || !wanted || known != "" {
			return missing > 0, nil
		}
		var row struct {
			Prompt   string            `json:"prompt"`
			Messages []json.RawMessage `json:"messages"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return false, fault.WithKind(fault.Corrupt, err, "decode the row")
		}
		said := row.Prompt
		if n := len(row.Messages); n > 0 {
			said = contentOf(row.Messages[n-1])
		}
		r.texts[string(name)] = cmp.Or(text.Truncate(said, textBytes, "…"), "(no text)")
		missing--
		return missing > 0, nil
	})
}

// contentOf returns the text of a message, or the message as JSON if it has parts.
func contentOf(message json.RawMessage) string {
	var m struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(message, &m) != nil {
		return string(message)
	}
	return m.Content
}

// sortedCounts returns the keys of counts, the highest count first.
func sortedCounts(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y))
	})
}
