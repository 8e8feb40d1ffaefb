package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"rollout/scripts/rollout/progress"
	"rollout/shared/core/guidance"
	"rollout/shared/figures"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

//go:embed page.html page.css
var files embed.FS

// Budgets of the lists on the page, in bytes. What is around them is smaller than the rest of 5 MB.
const (
	listBudget    = 550_000
	changesBudget = 1_600_000
)

// maxMissions bounds the missions that have a section of their own.
const maxMissions = 20

// page is what the template shows.
type page struct {
	Style        template.CSS
	Policy       string
	Run          record.Summary
	Tickets      sums
	Missions     []missionPage
	MoreMissions int
	Epochs       []rollout.Metrics
	Flows        []flow
	MoreFlows    int
	Results      []result
	Changes      section
	Hardest      section
	Flipped      section
	Review       section
	Reviews      []count
	Failures     section
	Causes       []count
	Agreement    []bar
	Retries      retries
	Long         int
}

// count is a number with its name.
type count struct {
	Name string
	N    int
}

// result is how many reflections of a mission ended so.
type result struct {
	Mission string
	Result  rollout.Result
	N       int
}

// bar is a bar of a histogram, from 0 to 100 % of the highest.
type bar struct {
	Label   string
	N       int
	Percent int
}

// section is a list whose rows are written already, and how many rows are left out.
type section struct {
	Rows template.HTML
	N    int
	More int
}

// missionPage is what the page shows of a mission.
type missionPage struct {
	Name       string
	Promoted   *guidance.Guidance
	Entries    []guidance.Entry
	More       int // entries that are left out
	Steps      []stepRow
	StepPlot   drawing
	BatchPlot  drawing
	Verdicts   []verdict
	Gain       *gain
	MoreValues int
	Front      []rollout.FrontMember
}

// gain is how the promoted step of a mission does on its holdout.
type gain struct {
	Step, Tickets int
	Before, After float64
}

// stepRow is a row of the table of steps.
type stepRow struct {
	Step     string
	Promoted bool
	sums
	Holdout *rollout.Measure
}

// Write writes the page of an ended run. NotFound means that the run has no files.
func Write(ctx context.Context, to io.Writer, run Run) error {
	r, err := read(ctx, run)
	if err != nil {
		return err
	}
	style, err := files.ReadFile("page.css")
	if err != nil {
		return err
	}
	t, err := template.New("page.html").Funcs(functions).ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	p, err := r.page(t)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(style)
	p.Style = template.CSS(style)
	p.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; img-src data:; base-uri 'none'; form-action 'none'"
	w := transform.NewWriter(to, runes.Map(inert))
	if err := t.ExecuteTemplate(w, "page.html", p); err != nil {
		return err
	}
	return w.Close()
}

// inert replaces characters that control the direction of text, or that pages must not have.
func inert(r rune) rune {
	if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}

// functions are those of the template.
var functions = template.FuncMap{
	"number": func(v *float64) string {
		if v == nil {
			return "–"
		}
		return number(*v)
	},
	"value":   number,
	"percent": percent,
	"count":   func(n int) string { return progress.Count(uint64(max(0, n))) },
	"tokens":  func(n int64) string { return progress.Count(uint64(max(0, n))) },
	"items":   progress.Count,
	"words":   func(v any) string { return strings.ReplaceAll(fmt.Sprint(v), "_", " ") },
	"inc":     func(n int) int { return n + 1 },
	"dollars": figures.Dollars,
	"signed":  func(v float64) string { return fmt.Sprintf("%+.3f", v) },
	"p": func(v float64) string {
		if v < 0.001 {
			return "P < 0.001"
		}
		return "P = " + number(v)
	},
	"seconds": func(s float64) string { return progress.FormatDuration(time.Duration(s * float64(time.Second))) },
}

func percent(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", *v*100)
}

// page returns what the template shows.
func (r *reader) page(t *template.Template) (p page, err error) {
	p = page{Run: r.summary, Epochs: r.epochs, Retries: r.retries, Long: r.long}
	if p.Run.Rollout == nil {
		p.Run.Rollout = &record.Rollout{}
	}
	for _, m := range r.Manifest.Config.Missions {
		of := r.missions[m.Name]
		for _, b := range of.steps.bins {
			p.Tickets.add(b)
		}
		if len(p.Missions) == maxMissions {
			p.MoreMissions++
			continue
		}
		p.Missions = append(p.Missions, r.missionPage(of))
	}
	p.Flows, p.MoreFlows = first(r.tickets.sortedFlows(), maxListed)
	for _, k := range slices.SortedFunc(maps.Keys(r.changes.results), compareResults) {
		p.Results = append(p.Results, result{k.mission, k.result, r.changes.results[k]})
	}
	p.Causes, p.Reviews, p.Agreement = counts(r.causes), counts(r.reviews), bars(r.agree)
	changes := r.changes.list()
	for i := range changes {
		for k := range changes[i].Tickets {
			at := &changes[i].Tickets[k]
			at.Prompt = r.texts[at.Name]
		}
	}
	if p.Changes, err = render(t, "change", changes, r.changes.more, changesBudget); err != nil {
		return p, err
	}
	if p.Hardest, err = render(t, "ticket", r.listOf(r.hardest), r.hardest.more, listBudget); err != nil {
		return p, err
	}
	if p.Flipped, err = render(t, "ticket", r.listOf(r.flipped), r.flipped.more, listBudget); err != nil {
		return p, err
	}
	for i := range r.review {
		r.fill(&r.review[i])
	}
	if p.Review, err = render(t, "ticket", r.review, sum(r.reviews)-len(r.review), listBudget); err != nil {
		return p, err
	}
	p.Failures, err = render(t, "failure", r.failures, sum(r.causes)-len(r.failures), listBudget)
	return p, err
}

func compareResults(x, y resultKey) int {
	if c := strings.Compare(x.mission, y.mission); c != 0 {
		return c
	}
	return strings.Compare(string(x.result), string(y.result))
}

// missionPage returns what the page shows of a mission.
func (r *reader) missionPage(m *mission) (p missionPage) {
	p = missionPage{Name: m.name, Promoted: m.promoted}
	for _, member := range m.front {
		member.Name, member.Parent = frontName(member.Name), frontName(member.Parent)
		p.Front = append(p.Front, member)
	}
	if m.promoted != nil {
		p.Entries, p.More = first(m.promoted.Entries, maxListed)
		before, known := r.changes.holdout[stepKey{m.name, 0}]
		after, measured := r.changes.holdout[stepKey{m.name, m.promoted.Step}]
		if known && measured {
			p.Gain = &gain{m.promoted.Step, after.Tickets, before.Score, after.Score}
		}
	}
	for bin, s := range m.steps.bins {
		from, to := m.steps.span(bin)
		row := stepRow{Step: span(from, to), sums: s}
		row.Promoted = m.promoted != nil && from <= m.promoted.Step && m.promoted.Step <= to
		if h, ok := r.changes.holdout[stepKey{m.name, from}]; ok && from == to {
			row.Holdout = &h
		}
		p.Steps = append(p.Steps, row)
	}
	p.StepPlot = plotOf(m.steps, "step", "mission "+m.name, 0).draw()
	batches := plotOf(m.batches, "batch", "mission "+m.name, 1)
	for _, step := range slices.Sorted(maps.Keys(m.starts)) {
		if step == 0 { // at the edge of the plot
			continue
		}
		batches.Marks = append(batches.Marks, mark{m.starts[step] + 1, fmt.Sprintf("step %d", step)})
	}
	p.BatchPlot = batches.draw()
	p.Verdicts, p.MoreValues = first(m.sortedVerdicts(), maxListed)
	return p
}

// listOf returns the tickets of a list, with what was asked and answered.
func (r *reader) listOf(l list) (out []ticket) {
	for _, h := range l.order {
		t := *l.tickets[h]
		r.fill(&t)
		out = append(out, t)
	}
	return out
}

func (r *reader) fill(t *ticket) { t.Prompt, t.Answer = r.texts[t.Name], r.answers[t.id] }

// render writes each row by the template of that name until the budget is used up. more are rows that are left out
// already.
func render[T any](t *template.Template, name string, rows []T, more, budget int) (section, error) {
	var b, row bytes.Buffer
	for n, v := range rows {
		row.Reset()
		if err := t.ExecuteTemplate(&row, name, v); err != nil {
			return section{}, err
		}
		if b.Len()+row.Len() > budget {
			return section{template.HTML(b.String()), n, more + len(rows) - n}, nil
		}
		b.Write(row.Bytes())
	}
	// The template has escaped what is in the rows.
	return section{template.HTML(b.String()), len(rows), more}, nil
}

func counts(of map[string]int) (out []count) {
	for _, name := range sortedCounts(of) {
		out = append(out, count{name, of[name]})
	}
	return out
}

func sum(of map[string]int) (n int) {
	for _, c := range of {
		n += c
	}
	return n
}

// bars returns the histogram of agreements.
func bars(of [10]int) (out []bar) {
	highest := max(1, slices.Max(of[:]))
	for i, n := range of {
		out = append(out, bar{fmt.Sprintf("%d–%d %%", i*10, (i+1)*10), n, n * 100 / highest})
	}
	return out
}
