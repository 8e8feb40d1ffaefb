package diagnosis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/text"
	"rollout/shared/trials"
)

// TrialGrid is a part of what the trials of a run have come to: a row for each task, with a cell
// for each variant.
type TrialGrid struct {
	Tasks        int           `json:"tasks"`        // of the run; 0 before they are planned
	Replications int           `json:"replications"` // of each task under each variant
	Graded       bool          `json:"graded"`       // whether the run has graders
	Variants     []TrialColumn `json:"variants"`     // in the order of the config
	Rows         []TrialRow    `json:"rows"`         // in the order of the input
	Next         *int          `json:"next"`         // the number of the task after these; null at the end
	// Unread are trials of these rows that are done, and were not looked at in the time of one call:
	// later calls have them.
	Unread int `json:"unread"`
}

// TrialColumn is a variant, and what it came to in a run that has ended; see record.TrialVariant.
type TrialColumn struct {
	Name           string   `json:"name"`
	Ended          bool     `json:"ended"` // whether the other members are known
	Trials         int      `json:"trials"`
	Answered       int      `json:"answered"`
	Failed         int      `json:"failed"`
	Infrastructure int      `json:"infrastructure"`
	Pruned         int      `json:"pruned"`
	Scored         int      `json:"scored"`
	ScoredTasks    int      `json:"scored_tasks"`
	Score          *float64 `json:"score"`
	Low            *float64 `json:"low"`
	High           *float64 `json:"high"`
	Model          string   `json:"model"`
	TokensUSD      *float64 `json:"tokens_usd"`
	SolvedTasks    int      `json:"solved_tasks"`
	USDPerSolved   *float64 `json:"usd_per_solved_task"`
}

// TrialRow is a task.
type TrialRow struct {
	Number int         `json:"number"` // from 0
	Task   string      `json:"task"`   // its id; "" if the input is gone
	Cells  []TrialCell `json:"cells"`  // by variant
}

// TrialCell is a task under a variant.
type TrialCell struct {
	Answered       int       `json:"answered"`
	Failed         int       `json:"failed"`         // that the variant lost; they score 0
	Infrastructure int       `json:"infrastructure"` // that nothing can be said about
	Pruned         int       `json:"pruned"`
	InHand         int       `json:"in_hand"` // that workers have now
	Waiting        int       `json:"waiting"`
	Scored         int       `json:"scored"`
	Score          *float64  `json:"score"`  // the mean of those; null without any
	Trials         []TrialAt `json:"trials"` // the first ones, by replication
}

// TrialAt is where a trial is.
type TrialAt struct {
	Item  uint64     `json:"index"`
	State TrialState `json:"state"`
	Score *float64   `json:"score"`
}

// TrialState is a verdict of package trials, or one of the states below. Example: "answered".
type TrialState string

// States of trials without a verdict.
const (
	TrialInHand  TrialState = TrialState(ListedInHand)
	TrialWaiting TrialState = TrialState(ListedWaiting)
	TrialUnread  TrialState = "unread" // it is done; see TrialGrid.Unread
)

// Bounds of a grid.
const (
	maxGridTasks  = 25  // rows of a page
	maxGridCells  = 150 // of a page, but for one row
	maxGridTrials = 250 // of a page, but for one row
	maxGridListed = 500 // trials that cells of a page list, one for each cell at least
	maxGridReads  = 500 // rows that are read in one call, each in an object of its own
	maxTaskID     = 128 // characters
	gridReaders   = 8
)

// Trials returns the tasks of a run from a number on. A run of another kind is NotFound, and so is
// a grid of trials that are laid out in another way.
//
// A call reads the documents of the run, a few, those of the trials on the page that were sent and
// have not been seen done, and for each one that is newly done its row. What is done is remembered.
func (x *Explainer) Trials(ctx context.Context, id identity.RunID, from int) (g TrialGrid, err error) {
	p, err := x.reader.Progress(ctx, id, nil)
	if err != nil {
		return g, err
	}
	c := p.Manifest.Config
	if p.Manifest.Kind != config.KindTrials {
		return g, fault.New(fault.NotFound, "run %s is not a run of trials", id)
	}
	g = TrialGrid{Replications: c.DesignOf().Replications, Graded: len(c.Grades) > 0, Variants: []TrialColumn{},
		Rows: []TrialRow{}}
	known := x.grids.of(id)
	if err := known.columns(ctx, x.ports, p, &g); err != nil {
		return g, err
	}
	of := trials.DesignOf(c, 0)
	if of.Tasks = tasksOf(p, of); of.Tasks == 0 {
		return g, nil
	}
	g.Tasks = of.Tasks
	each := of.Variants * of.Replications
	rows := max(1, min(maxGridTasks, maxGridCells/of.Variants, maxGridTrials/each))
	last := min(of.Tasks, max(0, from)+rows)
	if from = min(max(0, from), last); last < of.Tasks {
		g.Next = &last
	}
	b := gridBuilder{x: x, p: p, of: of, known: known, items: known.itemsOf(p.Manifest, of)}
	return g, b.fill(ctx, &g, from, last)
}

// tasksOf returns how many tasks a run has; 0 before all of its trials are planned.
func tasksOf(p status.Progress, of design.Design) int {
	// Judges are asked in objects that are appended behind that of the trials.
	planned := p.Plan.AllMerged() && (p.Plan.Appended != nil || p.Plan.Inherited != nil) ||
		p.Plan.Inherited == nil && p.Plan.Appended != nil && p.Plan.Appended.Input > p.Manifest.InputCount()
	items := p.Plan.Items
	if len(p.Plan.Roles) > 0 {
		items = p.Manifest.OutputItems(p.Plan.Roles)
	}
	if each := uint64(of.Variants * of.Replications); planned && each > 0 && items%each == 0 {
		return int(items / each)
	}
	return 0
}

// columns fills in the variants.
func (k *knownGrid) columns(ctx context.Context, ports host.Ports, p status.Progress, g *TrialGrid) error {
	for _, v := range p.Manifest.Config.Variants {
		g.Variants = append(g.Variants, TrialColumn{Name: v.Name})
	}
	if !p.State.Phase.Ended() {
		return nil
	}
	sum, err := k.summary(ctx, ports, p.Manifest.Run)
	if err != nil || sum == nil {
		return err
	}
	for n := range g.Variants {
		at := slices.IndexFunc(sum.Variants, func(v record.TrialVariant) bool { return v.Name == g.Variants[n].Name })
		if at < 0 {
			continue
		}
		v := sum.Variants[at]
		g.Variants[n] = TrialColumn{Name: v.Name, Ended: true, Trials: v.Trials, Answered: v.Answered,
			Failed: total(v.Failed), Infrastructure: total(v.Infrastructure), Pruned: v.Pruned, Scored: v.Scored,
			ScoredTasks: v.ScoredTasks, Score: v.Score, Low: v.Low, High: v.High, Model: v.Model,
			TokensUSD: v.TokensUSD, SolvedTasks: v.SolvedTasks, USDPerSolved: v.USDPerSolved}
	}
	return nil
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// gridBuilder makes a page of a grid.
type gridBuilder struct {
	x     *Explainer
	p     status.Progress
	of    design.Design
	known *knownGrid
	items []int32 // the item of each slot of the design
}

// cellTrial is a trial on the way into a cell.
type cellTrial struct {
	item    uint64
	loc     input.Location
	outcome trialOutcome
}

// fill makes the rows of the tasks from lo to hi.
func (b *gridBuilder) fill(ctx context.Context, g *TrialGrid, lo, hi int) error {
	var all []*cellTrial
	for task := lo; task < hi; task++ {
		for n := range b.of.Variants * b.of.Replications {
			item := uint64(b.items[task*b.of.Variants*b.of.Replications+n])
			loc, err := b.x.index.LocateItem(ctx, b.p.Manifest.Run, item)
			if err != nil {
				return err
			}
			all = append(all, &cellTrial{item, loc, trialOutcome{state: TrialWaiting}})
		}
	}
	if err := b.look(ctx, all); err != nil {
		return err
	}
	listed := max(1, maxGridListed/max(1, (hi-lo)*b.of.Variants))
	for task := lo; task < hi; task++ {
		row := TrialRow{Number: task, Cells: []TrialCell{}}
		first := all[(task-lo)*b.of.Variants*b.of.Replications:]
		var err error
		if row.Task, err = b.taskID(ctx, task, first[0].loc); err != nil {
			return err
		}
		for v := range b.of.Variants {
			row.Cells = append(row.Cells, cellOf(first[v*b.of.Replications:(v+1)*b.of.Replications], listed, &g.Unread))
		}
		g.Rows = append(g.Rows, row)
	}
	return nil
}

// cellOf sums up the trials of a cell, and lists the first ones.
func cellOf(of []*cellTrial, listed int, unread *int) TrialCell {
	c := TrialCell{Trials: []TrialAt{}}
	sum := 0.0
	for _, t := range of {
		switch t.outcome.state {
		case TrialState(trials.Answered):
			c.Answered++
		case TrialState(trials.Failed):
			c.Failed++
		case TrialState(trials.Infrastructure):
			c.Infrastructure++
		case TrialState(trials.Pruned):
			c.Pruned++
		case TrialInHand:
			c.InHand++
		case TrialUnread:
			*unread++
		default:
			c.Waiting++
		}
		if t.outcome.score != nil {
			c.Scored++
			sum += *t.outcome.score
		}
		if len(c.Trials) < listed {
			c.Trials = append(c.Trials, TrialAt{t.item, t.outcome.state, t.outcome.score})
		}
	}
	if c.Scored > 0 {
		mean := sum / float64(c.Scored)
		c.Score = &mean
	}
	return c
}

// look finds out what became of trials.
func (b *gridBuilder) look(ctx context.Context, all []*cellTrial) error {
	st, ended := b.p.State, b.p.State.Phase.Ended()
	var due []*cellTrial
	b.known.mu.Lock()
	for _, t := range all {
		n := t.loc.Shard()
		if o, ok := b.known.outcomes[t.item]; ok && !(o.ungraded && ended) {
			t.outcome = o
		} else if ended || b.p.Manifest.Parent != nil || st.WasSent(n) || st.Done.Set.Has(n) {
			due = append(due, t)
		}
	}
	b.known.mu.Unlock()
	slices.SortFunc(due, func(a, b *cellTrial) int { return cmp.Compare(a.item, b.item) })
	docs, err := b.docs(ctx, due)
	if err != nil {
		return err
	}
	b.read(ctx, due, docs)
	b.known.mu.Lock()
	defer b.known.mu.Unlock()
	for _, t := range due {
		if t.outcome.final {
			b.known.keep(t.item, t.outcome)
		}
	}
	return nil
}

// docs reads the documents of trials that are in no file of the run.
func (b *gridBuilder) docs(ctx context.Context, due []*cellTrial) (map[int]shard.Doc, error) {
	out := map[int]shard.Doc{}
	if b.p.State.Phase.Ended() {
		return out, nil
	}
	var ranges []interval.Range
	for _, t := range due {
		ranges = append(ranges, interval.Range{Lo: t.loc.Shard(), Hi: t.loc.Shard() + 1})
	}
	docs, err := b.x.reader.Shards(ctx, b.p.Manifest.Run, ranges, len(ranges))
	for _, d := range docs {
		out[d.Shard] = d
	}
	return out, err
}

// read looks at the rows of trials, at several at once. A trial whose row can't be read in
// time has the state unread.
func (b *gridBuilder) read(ctx context.Context, due []*cellTrial, docs map[int]shard.Doc) {
	for n, t := range due {
		if n >= maxGridReads {
			t.outcome.state = TrialUnread
		}
	}
	due = due[:min(len(due), maxGridReads)]
	ctx, cancel := context.WithTimeout(ctx, maxListTime)
	defer cancel()
	var group errgroup.Group
	for some := range slices.Chunk(due, max(1, (len(due)+gridReaders-1)/gridReaders)) {
		group.Go(func() error {
			l := b.x.list(b.p)
			defer l.close()
			if !b.p.State.Phase.Ended() {
				l.docs = docs // it has all that are asked for, so that it is only read
			}
			err := l.open(ctx)
			for _, t := range some {
				if t.outcome.state = TrialUnread; err == nil {
					t.outcome = b.outcomeOf(ctx, l, t)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // trials that can't be read keep the state unread
}

// outcomeOf reads the row of a trial.
func (b *gridBuilder) outcomeOf(ctx context.Context, l *lister, t *cellTrial) trialOutcome {
	l.bytes = 0 // of this row alone
	rows, rest, err := l.rows(ctx, t.loc)
	row, has := rows[0]
	graded, class := len(b.p.Manifest.Config.Grades) > 0, rest.class
	switch {
	case err != nil, !has && rest.unread > 0:
		return trialOutcome{state: TrialUnread}
	case has && rest.withRow != ListedDone: // its worker may still lose it
		return trialOutcome{state: TrialInHand}
	case has && row.Class == "":
		o := trialOutcome{state: TrialState(trials.Answered), final: true}
		if graded {
			r, err := grade.ReadRow(row.Bytes)
			o.score, o.ungraded = r.Score, err != nil // what judges say is in the rows when the run has ended
		}
		return o
	case has:
		class = row.Class
	case rest.state != ListedFailed:
		return trialOutcome{state: TrialState(rest.state)}
	}
	o := trialOutcome{state: TrialState(trials.VerdictOf(class)), final: true}
	if graded && o.state == TrialState(trials.Failed) {
		o.score = new(float64)
	}
	return o
}

// taskID returns the id of a task, from the line of one of its trials.
func (b *gridBuilder) taskID(ctx context.Context, task int, of input.Location) (string, error) {
	b.known.mu.Lock()
	id, ok := b.known.tasks[task]
	b.known.mu.Unlock()
	if ok {
		return id, nil
	}
	sh, err := b.x.index.LoadShard(ctx, b.p.Manifest, of.Entry.Range, of.Row)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(sh.Lines) == 0 {
		return "", nil
	}
	t, err := trials.ReadTrial(sh.Lines[0].Bytes)
	if err != nil {
		return "", err
	}
	if want := fmt.Sprintf("t%d.%s.r0", task, b.p.Manifest.Config.Variants[0].Name); t.ID != want {
		return "", fault.New(fault.NotFound, "the trials of run %s are laid out in another way: %s is where %s is expected",
			b.p.Manifest.Run, t.ID, want)
	}
	id = text.Truncate(t.Task, maxTaskID, "…")
	b.known.mu.Lock()
	defer b.known.mu.Unlock()
	if len(b.known.tasks) >= maxTaskIDs {
		clear(b.known.tasks)
	}
	b.known.tasks[task] = id
	return id, nil
}

// trialOutcome is what became of a trial.
type trialOutcome struct {
	state    TrialState
	score    *float64
	final    bool // it will not change, unless
	ungraded bool // it has no score before the run has ended
}

// Bounds of what grids remember.
const (
	maxGrids    = 4 // runs
	maxOutcomes = 50_000
	maxTaskIDs  = 5_000
)

// grids remember what is final of the runs whose grids were looked at last, the latest first. The
// zero value is ready for use. It is safe for concurrent use.
type grids struct {
	mu   sync.Mutex
	runs []*knownGrid
}

// knownGrid is what is known of a run of trials.
type knownGrid struct {
	run identity.RunID

	mu       sync.Mutex
	of       design.Design
	items    []int32                 // see gridBuilder
	sum      *record.Trials          // of an ended run
	outcomes map[uint64]trialOutcome // by item
	tasks    map[int]string          // their ids
}

// of returns what is known of a run.
func (g *grids) of(id identity.RunID) *knownGrid {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.IndexFunc(g.runs, func(k *knownGrid) bool { return k.run == id })
	k := &knownGrid{run: id, outcomes: map[uint64]trialOutcome{}, tasks: map[int]string{}}
	if at >= 0 {
		k = g.runs[at]
		g.runs = slices.Delete(g.runs, at, at+1)
	}
	g.runs = slices.Insert(g.runs, 0, k)
	g.runs = g.runs[:min(len(g.runs), maxGrids)]
	return k
}

// itemsOf returns the item of each slot of the design.
func (k *knownGrid) itemsOf(m record.Manifest, of design.Design) []int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of != of {
		k.of, k.items = of, make([]int32, of.Trials())
		item := int32(0)
		for p := range trials.Places(m, of.Tasks) {
			k.items[of.Slot(p)] = item
			item++
		}
	}
	return k.items
}

// keep remembers an outcome. The caller holds the lock.
func (k *knownGrid) keep(item uint64, o trialOutcome) {
	if len(k.outcomes) >= maxOutcomes {
		clear(k.outcomes)
	}
	k.outcomes[item] = o
}

// summary returns what the trials of an ended run came to; nil if its summary is gone.
func (k *knownGrid) summary(ctx context.Context, p host.Ports, id identity.RunID) (*record.Trials, error) {
	k.mu.Lock()
	known := k.sum
	k.mu.Unlock()
	if known != nil {
		return known, nil
	}
	key := record.OutputKey(id, record.SummaryFile)
	b, err := input.ReadObject(ctx, p.Blobs, key, maxSummary)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var sum record.Summary
	if err := json.Unmarshal(b, &sum); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "read %s", key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sum = sum.Trials
	return k.sum, nil
}

// maxSummary bounds a summary that is read.
const maxSummary = 4 << 20
