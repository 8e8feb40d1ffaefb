package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Explanation explains a run and some of its items. Like Status, its JSON form
// only grows.
type Explanation struct {
	Run     status.Status    `json:"run"`
	History []string         `json:"story"`  // what happened so far
	Causes  []status.Blocker `json:"causes"` // why it is not done, or not done faster: the likeliest first
	Next    []string         `json:"next"`   // what happens next, and what the user can do
	// Shards are the first shards that are sent and not done, at most 10 of
	// OpenShards.
	Shards     []ShardReport         `json:"shards"`
	OpenShards int                   `json:"open_shards"`
	Workers    []status.WorkerStatus `json:"workers"`
	Queues     []status.QueueStatus  `json:"queues"`
	Items      []ItemReport          `json:"items"` // those that were asked for
}

// ShardReport is where one shard is.
type ShardReport struct {
	Shard   int         `json:"shard"`
	State   shard.State `json:"state"`
	Attempt uint64      `json:"attempt"`
	Worker  string      `json:"worker"` // its holder, or the worker that committed it; "" for neither
	// Verdict is whether its holder lives and still holds it, by the holder's
	// heartbeat; "" unless the shard is running.
	Verdict health.Verdict `json:"verdict"`
	Since   *time.Time     `json:"since"` // time of the claim
	Items   int            `json:"items"` // 0 before a worker has loaded it
	Rows    int            `json:"rows"`  // that its holder or a checkpoint has
	// Generation counts the messages that sent it to a pool, from 0; -1 before
	// the first. SentAt is the time of the last one.
	Generation  int        `json:"generation"`
	SentAt      *time.Time `json:"sent_at"`
	Suspects    int        `json:"suspects"` // items that may have crashed an engine
	OnProbation []int      `json:"trying"`   // suspects that are asked alone now, by their place in the shard
	Vanished    int        `json:"vanished"` // consecutive holders that died without a release
	// Paused says that it waits until the run is resumed.
	Paused bool `json:"paused,omitempty"`
	// WaitsWith are the tokens that it has spent, if it waits for more of the run's
	// budgets, and WaitsWithUSD the dollars; each 0 without such a budget.
	WaitsWith    int64   `json:"waits_with,omitempty"`
	WaitsWithUSD float64 `json:"waits_with_usd,omitempty"`
}

// Bounds of an explanation.
const (
	explainShards = 10  // that are reported
	explainLooked = 512 // that are read to find causes
)

// Explainer explains runs and items. It reads documents and objects, never
// writes, and is safe for concurrent use.
type Explainer struct {
	ports   host.Ports
	reader  *status.Reader
	index   *input.Index
	timings health.Timings
	// deployment has the settings of the engines.
	deployment config.Deployment
	samples    samples // of failures
	grids      grids   // of runs of trials
}

// NewExplainer returns the explainer of a deployment, which reads through r.
func NewExplainer(p host.Ports, d config.Deployment, r *status.Reader) *Explainer {
	return &Explainer{ports: p, reader: r, index: input.NewIndex(p.Blobs, p.Docs), timings: host.Timings(d.Health),
		deployment: d}
}

// Explain explains the run and, unless item is "", the items that item names:
// by a line's own id, an item id in hex, "#" and an item index, or FILE:LINE.
// An id that several lines have names several items. A run or an item that
// does not exist is NotFound.
func (x *Explainer) Explain(ctx context.Context, id identity.RunID, item string) (Explanation, error) {
	workers, err := x.reader.Workers(ctx)
	if err != nil {
		return Explanation{}, err
	}
	p, err := x.reader.Progress(ctx, id, workers)
	if err != nil {
		return Explanation{}, err
	}
	now := x.ports.Clock.Now()
	e := Explanation{
		Run:     StatusOf(p, now),
		Workers: []status.WorkerStatus{}, Shards: []ShardReport{}, Items: []ItemReport{},
	}
	for _, w := range workers {
		if slices.Contains(e.Run.Pools(), w.Pool) || w.HeldOf(id) > 0 {
			e.Workers = append(e.Workers, w)
		}
	}
	if e.Queues, err = x.reader.Queues(ctx, e.Run.Pools()); err != nil {
		return e, err
	}
	if !e.Run.Phase.Ended() {
		docs, err := x.reader.Shards(ctx, p.State.Run, p.State.Open(), explainLooked)
		if err != nil {
			return e, err
		}
		e.OpenShards = p.State.Sent() - p.State.Done.Set.Len()
		for _, d := range docs {
			// A commit is in the document of its shard before the run's state counts it.
			if d.State == shard.Done {
				e.OpenShards--
				continue
			}
			e.Shards = append(e.Shards, x.shardReport(p, d, now))
		}
		e.OpenShards = max(e.OpenShards, len(e.Shards))
	}
	e.History = history(p, e.Run)
	e.Causes = causes(p, e, now)
	e.Next = next(p, e.Run)
	if lost, err := x.firstLost(ctx, p, e.Run); err != nil {
		return e, err
	} else if lost != "" {
		e.Next = append(e.Next, "the first whose rows are lost: "+lost)
	}
	if item != "" {
		if e.Items, err = x.explainItem(ctx, p, item, now); err != nil {
			return e, err
		}
	}
	e.Shards = e.Shards[:min(len(e.Shards), explainShards)]
	return e, nil
}

// shardReport joins the shard's document with its holder's heartbeat and the
// run's state.
func (x *Explainer) shardReport(p status.Progress, d shard.Doc, now time.Time) ShardReport {
	t := ShardReport{Shard: d.Shard, State: d.State, Attempt: d.Attempt, Worker: d.Worker, Since: timeOrNil(d.ClaimedAt),
		Items: d.Items, Suspects: d.Suspects.Len(), OnProbation: d.OnProbation, Vanished: d.VanishedHolders, Generation: -1}
	if d.Checkpoint != nil || d.State == shard.Done {
		t.Rows = d.Counts.OK + d.Counts.Failed
	}
	if t.OnProbation == nil {
		t.OnProbation = []int{}
	}
	for _, c := range p.State.InFlight.Chunks {
		if c.Lo <= d.Shard && d.Shard < c.Hi {
			t.Generation, t.SentAt = c.Generation, timeOrNil(c.SentAt)
		}
	}
	if a, ok := p.State.Allowances.Of(d.Shard); ok && a.Waits {
		t.WaitsWith, t.WaitsWithUSD = a.Tokens, a.USD()
	}
	paused := p.State.Phase == run.Paused || p.State.Phase == run.Interrupted
	if d.State != shard.Running {
		t.Paused = paused
		return t
	}
	t.Verdict = health.HolderDead
	for _, w := range p.Workers {
		if w.Worker != d.Worker {
			continue
		}
		beat := &health.Heartbeat{State: w.State, At: w.HeartbeatAt, DueAt: w.DueAt, Holds: w.Holds}
		t.Verdict = x.timings.Judge(d, beat, now)
		for _, h := range w.Holds {
			if h.Run == d.Run && h.Shard == d.Shard && h.Items > 0 {
				t.Items, t.Rows = h.Items, h.Rows
			}
		}
	}
	if t.Items > 0 { // a shard document writes "all items" as a very large set
		t.Suspects = min(t.Suspects, t.Items-t.Rows)
	}
	t.Paused = paused && t.lost()
	return t
}

// lost reports whether the shard's holder is gone.
func (t ShardReport) lost() bool {
	return t.State == shard.Running && (t.Verdict == health.HolderDead || t.Verdict == health.NotListed)
}

// Describe returns a sentence, without a full stop, that says where the shard is.
func (t ShardReport) Describe(now time.Time) string {
	name := fmt.Sprintf("shard %d ", t.Shard)
	rows := ""
	if t.Items > 0 {
		rows = fmt.Sprintf(", with %s of %s", figures.Count(t.Rows), figures.Of(t.Items, "row"))
	} else if t.Rows > 0 {
		rows = fmt.Sprintf(", with %s in its checkpoint", figures.Of(t.Rows, "row"))
	}
	text := ""
	switch {
	case t.State == shard.Done:
		text = name + "is done"
	case t.Paused:
		text = name + "is paused" + rows
	case t.lost() && t.Since != nil && t.SentAt != nil && t.SentAt.After(*t.Since):
		text = fmt.Sprintf("%swas held by worker %s (attempt %d), which is gone: sent again %s ago, it waits for a worker "+
			"that needs more items%s", name, t.Worker, t.Attempt, sinceWords(t.SentAt, now), rows)
	case t.lost():
		text = fmt.Sprintf("%swas held by worker %s (attempt %d), which is gone: it is taken over in some seconds%s",
			name, t.Worker, t.Attempt, rows)
	case t.State == shard.Running:
		text = fmt.Sprintf("%sis with worker %s for %s (attempt %d)%s",
			name, t.Worker, sinceWords(t.Since, now), t.Attempt, rows)
	case t.WaitsWithUSD > 0 && t.WaitsWith > 0:
		text = fmt.Sprintf("%shas spent %s and %s, and waits for more of the run's budgets%s",
			name, figures.Of(t.WaitsWith, "token"), figures.Dollars(t.WaitsWithUSD), rows)
	case t.WaitsWithUSD > 0:
		text = fmt.Sprintf("%shas spent %s and waits for more of the budget in dollars%s", name,
			figures.Dollars(t.WaitsWithUSD), rows)
	case t.WaitsWith > 0:
		text = fmt.Sprintf("%shas spent %s and waits for more of the token budget%s",
			name, figures.Of(t.WaitsWith, "token"), rows)
	case t.SentAt != nil && t.Generation > 0:
		text = fmt.Sprintf("%swaits for a worker%s: sent %s ago, for the %s time",
			name, rows, sinceWords(t.SentAt, now), ordinal(t.Generation+1))
	case t.SentAt != nil:
		text = fmt.Sprintf("%swaits for a worker%s: sent %s ago", name, rows, sinceWords(t.SentAt, now))
	default:
		text = name + "waits to be sent" + rows
	}
	if t.Vanished > 0 {
		text += fmt.Sprintf("; %s in a row vanished", figures.Of(t.Vanished, "holder"))
	}
	switch {
	case len(t.OnProbation) > 0:
		text += fmt.Sprintf("; %s asked now with nothing else",
			figures.OfMany(len(t.OnProbation), "suspect is", "suspects are"))
	case t.Suspects > 0:
		text += fmt.Sprintf("; %s: asked last", figures.OfMany(t.Suspects, "item is a suspect", "items are suspects"))
	}
	return text
}

func sinceWords(t *time.Time, now time.Time) string {
	if t == nil {
		return "some time"
	}
	return figures.Duration(now.Sub(*t))
}

func ordinal(n int) string {
	switch {
	case n%100 >= 11 && n%100 <= 13:
		return fmt.Sprintf("%dth", n)
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}

// maxNamed bounds the inputs, and the servers, that a text names.
const maxNamed = 3

// history returns what happened to the run so far.
func history(p status.Progress, s status.Status) (out []string) {
	m, st := p.Manifest, p.State
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	var names []string
	for _, in := range m.Inputs[:min(len(m.Inputs), maxNamed)] {
		names = append(names, in.Label())
	}
	more := ""
	if n := m.InputCount() - maxNamed; n > 0 {
		more = fmt.Sprintf(" and %s", figures.Of(n, "more file"))
	}
	config := "the deployment's default config"
	if m.ConfigKey != "" {
		config = m.ConfigKey
	}
	if m.ConfigAlsoOf != "" {
		config += ", which is also the config of " + m.ConfigAlsoOf
	}
	say("submitted at %s from %s%s (%s), with %s",
		s.CreatedAt.Format(time.RFC3339), strings.Join(names, ", "), more, m.Dialect, config)
	if m.Parent != nil {
		say("it %s", m.Parent)
	}
	if m.Refused != "" {
		say("refused: %s", m.Refused)
		return out
	}
	switch {
	case p.Plan.Total == 0 && !st.Complete:
		say("not planned yet")
	case s.Rollout != nil && s.Rollout.Batch > 0:
		say("%s", newestBatch(*s.Rollout))
	case s.Items.Planned:
		say("planned: %s", planned(s))
	case st.Growing:
		say("planned so far: %s; further ones depend on their answers", planned(s))
	default:
		say("planned so far: %s, of %s of %s of its input", planned(s),
			figures.Count(p.Plan.Merged), figures.Of(p.Plan.Total, "range"))
	}
	if st.Sent() > 0 {
		say("sent to pool %s: %s; %s done, workers hold %s", strings.Join(s.Pools(), " and pool "),
			figures.Of(st.Sent(), "shard"), figures.OfMany(s.Shards.Done, "is", "are"), figures.Count(s.Shards.Running))
	}
	for _, r := range s.Roles {
		say("role %s in pool %s: %s of %s done; %s answered, %s failed; %s in, %s out", r.Name, r.Pool,
			figures.Count(r.Done), figures.OfMany(r.Shards, "shard is", "shards are"), figures.Of(r.Completed, "item"),
			figures.Count(r.Failed), figures.Of(r.PromptTokens, "token"), figures.Count(r.CompletionTokens))
	}
	if l := s.Looks; l != nil {
		say("%s of %s decided, at which variants can be left out", figures.Count(l.Decided),
			figures.OfMany(l.Of, "look is", "looks are"))
		for _, v := range l.Pruned {
			say("variant %s is pruned from trial %s on: %s", v.Variant, figures.Count(v.From), v.Why)
		}
	}
	for _, b := range s.Budgets {
		spent := figures.Dollars(b.Used) + " of " + figures.Dollars(b.Limit)
		if b.Name == "tokens" {
			spent = figures.Count(int64(b.Used)) + " of " + figures.Of(int64(b.Limit), "token")
		}
		say("spent of its budget (limits.%s): %s", b.Name, spent)
	}
	switch p.Control.Desired {
	case record.DesiredPause:
		say("a pause was requested at %s%s", p.Control.At.UTC().Format(time.RFC3339), because(p.Control.Reason))
	case record.DesiredEnd:
		say("its end was requested at %s%s", p.Control.At.UTC().Format(time.RFC3339), because(p.Control.Reason))
	}
	if s.EndedAt != nil {
		text := fmt.Sprintf("%s at %s: %s of %s answered", status.FormatPhase(s.Phase), s.EndedAt.Format(time.RFC3339),
			figures.Count(s.Items.Done), figures.Of(s.Items.Total, "item"))
		if s.Message != "" {
			text += ": " + s.Message
		}
		say("%s", text)
	}
	return append(out, refusedLines(s)...)
}

// planned says how many items and shards the run has.
func planned(s status.Status) string {
	return figures.Of(s.Items.Total, "item") + " in " + figures.Of(s.Shards.Total, "shard")
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// next returns what happens next with the run, and what the user can do.
func next(p status.Progress, s status.Status) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case p.Manifest.Refused != "":
		say("correct the config or the file, and submit it again: `rollout submit FILE`")
	case s.Phase.Ended():
		if s.Items.Done > 0 {
			say("the answers are in %s", s.Outputs)
		}
		if s.Items.Failed > 0 {
			say("the other items are in %s, one line each with class and reason", s.Errors)
		}
		for _, c := range failedClasses(s) {
			say("%s %s: %s", figures.Count(s.FailedByClass[string(c)]), c, Advice(c, againOf(p.Manifest)))
		}
	case s.Phase == run.Paused || s.Phase == run.Interrupted:
		say("`rollout resume %s` lets it go on, `rollout stop %s` ends it; what is answered is kept either way", s.Run, s.Run)
	case slices.ContainsFunc(s.Blockers, func(b status.Blocker) bool { return b.Code == NoWorker }):
		say("it goes on when a worker comes; what is answered is kept")
	case s.ETASeconds == nil && slices.ContainsFunc(s.Blockers, func(b status.Blocker) bool { return b.Code == NoEngine }):
		say("it goes on when the inference server answers; what is answered is kept")
	case s.ETASeconds != nil && s.Rate != nil:
		say("at %s it ends in about %s", speed(*s.Rate), inAbout(s))
	case s.ETASeconds != nil && s.Training != nil:
		say("step %s of %s is done; it ends in about %s",
			figures.Count(s.Training.Step), figures.Count(s.Training.Steps), inAbout(s))
	}
	if s.Deadline != nil && !s.Phase.Ended() {
		say("what is unanswered at %s expires", s.Deadline.Format(time.RFC3339))
	}
	return out
}

// inAbout renders the time that is left, at least a second.
func inAbout(s status.Status) string {
	return figures.Duration(max(time.Second, time.Duration(*s.ETASeconds)*time.Second))
}

// failedClasses returns the classes of failed items, the most frequent first.
func failedClasses(s status.Status) (out []fault.Class) {
	for _, c := range fault.Classes {
		if s.FailedByClass[string(c)] > 0 {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b fault.Class) int {
		return s.FailedByClass[string(b)] - s.FailedByClass[string(a)]
	})
	return out
}

// Again is how the items of a run are asked once more.
type Again struct {
	rest string // what asks those that it left unanswered
	with string // the beginning of what asks them with another setting
	// budget names the run's budgets.
	budget budgetNames
}

// budgetNames are a run's budgets in messages, and their keys.
type budgetNames struct{ used, keys string }

func budgetsOf(l config.Limits) budgetNames {
	switch {
	case l.Dollars <= 0:
		return budgetNames{"the token budget", "limits.tokens"}
	case l.Tokens <= 0:
		return budgetNames{"the budget in dollars", "limits.dollars"}
	}
	return budgetNames{"one of the run's budgets", "limits.tokens or limits.dollars"}
}

// againOf returns how items of the run are asked once more: by a retry, or by another
// submission where a run of its kind can't have one.
func againOf(m record.Manifest) Again {
	retriable := slices.Contains([]string{"", config.KindBatch, config.KindTrials}, m.Kind)
	if !retriable || len(m.Config.Judges()) > 0 {
		return Again{"submit the file again", "submit what is left with a larger ", budgetsOf(m.Config.Limits)}
	}
	retry := "`rollout retry " + string(m.Run) + " --unanswered`"
	return Again{retry + " asks them in a new run, which has all rows",
		retry + " asks them in a new run, which has all rows; give it --set with a larger ",
		budgetsOf(m.Config.Limits)}
}

// Advice returns what the user can do about items that failed with the class.
func Advice(c fault.Class, a Again) string {
	switch c {
	case fault.InvalidLine:
		return "correct the line, and submit it in a file of its own: a retry can't help"
	case fault.DuplicateID:
		return "an earlier line has the same id and was taken: " +
			"give the line an id of its own, and submit it in a file of its own: a retry can't help"
	case fault.TooLong:
		return "shorten the prompt or max_tokens, or take a model with a longer context"
	case fault.Refused:
		return "the inference server refuses the request: its message says why; correct the line or [sampling]"
	case fault.Engine:
		return "the inference server failed on it repeatedly (limits.failures): look at its log, and submit the line again"
	case fault.Poison:
		return "the inference server died of it twice: leave the prompt out, or report it to the server's developers"
	case fault.Timeout:
		return "no token came in time: lower max_tokens, or raise progress_timeout or request_timeout in [worker]"
	case fault.Expired:
		return "the deadline came first: " + a.with + "limits.deadline"
	case fault.CanceledItem:
		return "the run ended before they were answered: " + a.rest
	case fault.Budget:
		return a.budget.used + " was used up first: " + a.with + a.budget.keys
	case fault.Storage:
		return "its answer could not be kept, or was lost: free space on the disk, or restore the object that its row " +
			"names, and submit it again"
	case fault.Diverged:
		return "lower optimizer.lr in the config, raise warmup_steps, or set max_grad_norm, and submit it anew"
	case fault.Pruned:
		return "the run stopped its variant early: submit the variant in a run that does not prune, if you need all of it"
	case fault.InputChanged:
		return "the input was replaced while the run went on: the new file is a run of its own"
	case fault.ResultError:
		return "the agent left no result that can be read: its row says what it left, and how it ended"
	case fault.GradeError:
		return "the agent left a grade.json that can't be read: correct it, or remove it and let graders of the run grade"
	case fault.Sandbox:
		return "the machine could not run the agent: see the worker's log; no mean has its trials, " +
			"and `rollout retry --unscored` asks them again"
	case fault.WorkerLost:
		return "a worker vanished, and the run was to fail fast: " + a.rest
	}
	return "its message says why"
}

// timeOrNil returns nil for the zero time.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
