package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/pipeline"
	"rollout/shared/core/run"
	"rollout/shared/figures"
	"rollout/shared/record"
)

// The codes of blockers: what keeps a run from going on.
const (
	NotPickedUp     = "not_taken_up" // no function has handled it yet
	IsPaused        = "paused"
	IsPausing       = "pausing"
	NoInput         = "no_input" // the plan can't go on
	IsPlanning      = "planning" // no shard is cut yet
	NoWorker        = "no_worker"
	NoEngine        = "engine_away"
	NoServer        = "server_away" // one of several
	UnknownModel    = "unknown_model"
	AllDraining     = "draining"
	BusyElsewhere   = "busy_elsewhere" // the pool answers other runs
	LostWorker      = "worker_lost"
	Stalled         = "stalled"
	Limited         = "limited"     // the pool's limit is used up
	FrontierBlocked = "frontier"    // one shard keeps all others back
	AwaitsBudget    = "budget"      // shards wait for tokens of the run's budget
	SharesPool      = "shared"      // other runs get their part of the pool
	FewWorkers      = "few_workers" // the run may have more in flight than they send at once
	PipelineWaits   = "pipeline"    // the processes of a group that generate wait for its worker
	IsEnding        = "ending"
)

// How long things may take before they count as a blocker.
const (
	// A run is stalled without a row for stallAfter, and for stallTimes the
	// median duration of a request.
	stallAfter = 10 * time.Second
	stallTimes = 4
	// reassignWithin is how long the shards of a dead worker take to be
	// reassigned.
	reassignWithin = 15 * time.Second
	// launchFailureAge is how long a failed launch of a machine is reported. The
	// cloud's scaling group tries again meanwhile.
	launchFailureAge = 30 * time.Minute
	// lossShown is how long the last heartbeat of a pool without a living worker is told.
	lossShown = 10 * time.Minute
)

// StatusOf returns the run's status at the time now, with its blockers.
func StatusOf(p status.Progress, now time.Time) status.Status {
	s := status.Of(p, now)
	if !s.Phase.Ended() {
		s.Blockers = append(s.Blockers, blockers(p, s, now)...)
	}
	return s
}

// blockers returns what blocks a run that has not ended, the worst first.
func blockers(p status.Progress, s status.Status, now time.Time) []status.Blocker {
	st := p.State
	if waited := now.Sub(s.CreatedAt); st.SavedAt.IsZero() && waited >= p.Hints.PickupTime {
		if p.Manifest.AnyPacked() && status.AliveIn(p.Workers, "") {
			return []status.Blocker{{Code: IsPlanning, Text: "its input is being unpacked"}}
		}
		return []status.Blocker{{Code: NotPickedUp, Text: "no function has started it for " + figures.Duration(waited),
			Remedy: p.Hints.Start}}
	}
	if b, ok := phaseBlocker(p, s); ok {
		return []status.Blocker{b}
	}
	var out []status.Blocker
	if p.Plan.Problem != "" {
		out = append(out, status.Blocker{Code: NoInput, Text: "the plan can't go on: " + p.Plan.Problem})
	}
	out = append(out, lostWorkers(p, s, now)...)
	for _, pool := range p.Manifest.NeededPools(p.State) {
		out = append(out, poolBlockers(p, s, pool, now)...)
	}
	if len(out) == 0 && s.Shards.Total == 0 {
		out = append(out, status.Blocker{Code: IsPlanning,
			Text: fmt.Sprintf("its input is being cut: %s of %s",
				figures.Count(p.Plan.Merged), figures.Of(p.Plan.Total, "range"))})
	}
	if looks := st.LooksAsked > st.Looks; looks && !st.Phase.Ended() && st.Reason == "" {
		out = append(out, status.Blocker{Code: IsPlanning, Text: fmt.Sprintf("look %d is being decided: what it prunes is "+
			"not begun", st.LooksAsked)})
	} else if st.Growing && st.PlanOutstanding() {
		out = append(out, status.Blocker{Code: IsPlanning, Text: "its next items are being made from the answers so far"})
	}
	switch {
	case st.Warning == "":
	case len(st.Allowances.Waiting()) > 0:
		out = append(out, status.Blocker{Code: AwaitsBudget, Text: st.Warning,
			Remedy: "nothing: what is left goes to them, and the run ends when the budget is used up"})
	default:
		out = append(out, status.Blocker{Code: FrontierBlocked, Text: st.Warning})
	}
	out = append(out, fewWorkers(p)...)
	out = append(out, waitingPipelines(p)...)
	return append(out, sharesPool(s)...)
}

// fewWorkers says that a run may have more shards in flight than the workers of its pools send
// requests at once.
func fewWorkers(p status.Progress) (out []status.Blocker) {
	limit, most := p.Kind.ConstraintsOf(p.Manifest.Config).MaxInFlight, 0
	for _, w := range p.Workers {
		if w.Alive && slices.Contains(p.Manifest.NeededPools(p.State), w.Pool) {
			most += w.InFlight
		}
	}
	if most == 0 || limit <= most {
		return nil
	}
	return append(out, status.Blocker{Code: FewWorkers,
		Text: fmt.Sprintf("%s may be in flight at once, and its workers send %s at once: no more are",
			figures.Of(limit, "trial"), figures.Of(most, "request")),
		Remedy: "start more workers, or lower design.max_concurrency"})
}

// waitingPipelines names the groups of processes whose stage 1 waits for stage 0. A group that
// stage 1 bounds is as fast as it can be.
func waitingPipelines(p status.Progress) (out []status.Blocker) {
	for _, w := range p.Workers {
		g := w.Load.Pipeline
		if !w.Alive || g == nil || !slices.Contains(p.Manifest.NeededPools(p.State), w.Pool) {
			continue
		}
		b := status.Blocker{Code: PipelineWaits, Text: fmt.Sprintf("pipeline of worker %s: %s, overlap %.2f", w.Worker,
			g.Signature, g.OverlapScore)}
		switch pipeline.Signature(g.Signature) {
		case pipeline.Stage0Bound:
			b.Remedy = "give the worker more processors: its ranks wait for what it prepares and decodes"
		case pipeline.SchedulingBug:
			b.Remedy = "report it: the ranks wait for decodes although nothing is queued"
		default:
			continue
		}
		out = append(out, b)
	}
	return out
}

// phaseBlocker returns the blocker of a run that is paused or ending.
func phaseBlocker(p status.Progress, s status.Status) (b status.Blocker, ok bool) {
	st := p.State
	switch st.Phase {
	case run.Pausing:
		return status.Blocker{Code: IsPausing, Text: "it is being paused: requests in flight may end"}, true
	case run.Paused, run.Interrupted:
		text := status.FormatPhase(st.Phase)
		if st.Message != "" {
			text += ": " + st.Message
		}
		return status.Blocker{Code: IsPaused, Text: text,
			Remedy: fmt.Sprintf("`rollout resume %s` lets it go on", s.Run)}, true
	case run.Ending:
		return status.Blocker{Code: IsEnding, Text: fmt.Sprintf("it ends (%s): requests in flight have until %s",
			st.Reason, st.GraceUntil.UTC().Format(time.TimeOnly))}, true
	case run.Finalizing:
		return status.Blocker{Code: IsEnding, Text: "all rows are in: its files are being written"}, true
	}
	return status.Blocker{}, false
}

// poolCounts counts the living workers of a run's pool.
type poolCounts struct {
	alive, away, draining int
	here, elsewhere       int                 // hold shards of the run; of other runs only
	unavailable           status.WorkerStatus // one whose engine is away
	medianMS              int                 // the slowest median of the workers that hold the run's shards
	newest                time.Time           // when the last of those started
}

func (c *poolCounts) add(w status.WorkerStatus, s status.Status) {
	c.alive++
	switch {
	case w.Engine == status.EngineAway:
		c.away++
		c.unavailable = w
	case w.State == health.Draining:
		c.draining++
	}
	switch {
	case w.HeldOf(s.Run) > 0:
		c.here++
		c.medianMS = max(c.medianMS, int(w.Load.MedianMS))
		if w.StartedAt.After(c.newest) {
			c.newest = w.StartedAt
		}
	case len(w.Holds) > 0:
		c.elsewhere++
	}
}

// lostWorkers returns the dead workers whose shards are not reassigned yet. If no other worker of their pool lives, the
// blocker of the pool tells that.
func lostWorkers(p status.Progress, s status.Status, now time.Time) (out []status.Blocker) {
	for _, w := range p.Workers {
		if !status.AliveIn(p.Workers, w.Pool) {
			continue
		}
		silent := now.Sub(w.HeartbeatAt)
		if held := w.HeldOf(s.Run); !w.Alive && held > 0 && w.State != health.Gone && silent < reassignWithin {
			out = append(out, status.Blocker{Code: LostWorker,
				Text: fmt.Sprintf("the last heartbeat of worker %s was %s ago and it holds %s: others will take over",
					w.Worker, figures.Duration(silent), figures.Of(held, "shard"))})
		}
	}
	return out
}

// poolBlockers returns what keeps the workers of a pool that the run needs from
// working on it.
func poolBlockers(p status.Progress, s status.Status, pool string, now time.Time) (out []status.Blocker) {
	var c poolCounts
	for _, w := range p.Workers {
		if w.Alive && w.Pool == pool {
			c.add(w, s)
		}
	}
	switch {
	case c.alive == 0 && p.Hints.OtherPools != "" && !p.Kind.Trains && status.AliveIn(p.Workers, ""):
		return append(out, noServerOf(p, pool))
	case c.alive == 0:
		text := fmt.Sprintf("no worker of pool %s is alive", pool)
		if silent := now.Sub(lastHeartbeat(p.Workers, pool)); silent < lossShown {
			text += "; the last heartbeat was " + figures.Duration(silent) + " ago"
		}
		text += bootingText(p.Machines, pool, now)
		if ago := now.Sub(p.Fleet.AbsentAt); p.Fleet.Absent != "" && ago < launchFailureAge {
			text += fmt.Sprintf("; a machine could not come up %s ago: %s", figures.Duration(ago), p.Fleet.Absent)
		}
		if b := p.Fleet.Boots; b.Waits(now) {
			text += fmt.Sprintf("; %s before an answer, and the next is asked for in %s: %s",
				figures.OfMany(b.Failures, "machine ended", "machines in a row ended"),
				figures.Duration(b.RetryAt.Sub(now)), b.Reason)
		}
		return append(out, status.Blocker{Code: NoWorker, Text: text, Remedy: p.Hints.Workers(pool)})
	case c.away > 0:
		of := ""
		if c.alive > 1 {
			of = fmt.Sprintf(" of %s of %s", figures.Count(c.away), figures.Of(c.alive, "worker"))
		}
		load := c.unavailable.Load
		return append(out, status.Blocker{Code: NoEngine,
			Text: fmt.Sprintf("the inference server%s has been away for %s: %s",
				of, figures.Duration(now.Sub(load.UnavailableSince)), load.UnavailableReason),
			Remedy: "start the server, or correct its address: the run then goes on by itself"})
	case c.draining == c.alive:
		return append(out, status.Blocker{Code: AllDraining,
			Text: fmt.Sprintf("all workers of pool %s are draining", pool), Remedy: p.Hints.Replacement})
	case c.here == 0 && c.elsewhere > 0:
		return append(out, status.Blocker{Code: BusyElsewhere,
			Text:   fmt.Sprintf("the workers of pool %s answer other runs first", pool),
			Remedy: "wait, pause those, or start more workers"})
	}
	out = append(out, serversAway(p, pool)...)
	out = append(out, unknownModel(p, pool)...)
	if p.Kind.Trains { // its single item takes as long as it takes
		return out
	}
	if b, ok := limited(p, pool, c.alive, now); ok {
		return append(out, b)
	}
	return append(out, stalled(s, p.Manifest.Config, c, now)...)
}

// lastHeartbeat returns the time of the last heartbeat of the pool's workers that died.
func lastHeartbeat(workers []status.WorkerStatus, pool string) (at time.Time) {
	for _, w := range workers {
		if w.Pool == pool && !w.Alive && w.State != health.Gone && w.HeartbeatAt.After(at) {
			at = w.HeartbeatAt
		}
	}
	return at
}

// noServerOf returns the blocker of a pool without a worker while workers of other pools live. `rollout up` starts a
// worker for every pool that it knows, and without a config it knows one for each model that a server lists.
func noServerOf(p status.Progress, pool string) status.Blocker {
	var living, asked []string
	for _, w := range p.Workers {
		if !w.Alive {
			continue
		}
		living = append(living, w.Pool)
		for _, v := range w.Load.Servers {
			asked = append(asked, v.Name)
		}
	}
	slices.Sort(living)
	slices.Sort(asked)
	living, asked = slices.Compact(living), slices.Compact(asked)
	text := fmt.Sprintf("no living worker serves the model %s (pool %s): those that live are of %s %s",
		modelInPool(p.Manifest, pool), pool, figures.Plural(len(living), "pool", "pools"), strings.Join(living, ", "))
	if len(asked) > 0 {
		text += ", whose servers are " + strings.Join(asked[:min(len(asked), maxNamed)], ", ")
	}
	return status.Blocker{Code: UnknownModel, Text: text, Remedy: p.Hints.OtherPools}
}

// modelInPool returns the model that the run asks the pool for.
func modelInPool(m record.Manifest, pool string) string {
	for _, r := range m.Roles {
		if r.Pool == pool && pool != m.Pool {
			return r.ModelURI
		}
	}
	return m.ModelURI
}

// The states of a server's circuit breaker in which it gets no requests.
const (
	serverOpen     = "open"
	serverHalfOpen = "half_open"
)

// serversAway returns the blocker of a pool some of whose inference servers get no
// requests. An only server that is down is its workers' own cause.
func serversAway(p status.Progress, pool string) []status.Blocker {
	away := map[string]string{}
	all := map[string]bool{}
	aside := false
	for _, w := range p.Workers {
		if !w.Alive || w.Pool != pool {
			continue
		}
		for _, v := range w.Load.Servers {
			all[v.Name] = true
			switch v.State {
			case serverOpen, serverHalfOpen, health.ServerSetAside:
				away[v.Name] = v.LastError
				aside = aside || v.State == health.ServerSetAside
			}
		}
	}
	if len(away) == 0 || len(all) < 2 && !aside {
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(away)) {
		names = append(names, name+": "+away[name])
	}
	b := status.Blocker{Code: NoServer, Remedy: "start them again: the others answer meanwhile",
		Text: fmt.Sprintf("%s of %s no requests: %s", figures.Count(len(away)),
			figures.OfMany(len(all), "inference server gets", "inference servers get"),
			strings.Join(names[:min(len(names), maxNamed)], "; "))}
	if aside {
		b.Remedy = "mend what they say: each is asked again every few seconds, and gets requests when it answers"
	}
	return []status.Blocker{b}
}

// unknownModel returns the blocker of a pool whose servers answer, but list other models
// than the one that they are asked for.
func unknownModel(p status.Progress, pool string) []status.Blocker {
	for _, w := range p.Workers {
		if !w.Alive || w.Pool != pool {
			continue
		}
		for _, v := range w.Load.Servers {
			if v.State == health.ServerClosed && v.LastError != "" {
				return []status.Blocker{{Code: UnknownModel, Text: v.Name + ": " + v.LastError,
					Remedy: "correct the model of the pool or the run, or map it with body_model of the engine"}}
			}
		}
	}
	return nil
}

// stalled returns a blocker if no item was finished for much longer than a
// request takes. A worker that has just started has no row yet, and a run whose turn has not
// come has no requests. An answer gets its row after its scores, so a scoring service can be the reason as well.
func stalled(s status.Status, cfg config.Run, c poolCounts, now time.Time) []status.Blocker {
	if s.StartedAt == nil || s.Shards.Running == 0 || onlyAwaitsTurn(s.Shares) {
		return nil
	}
	since := *s.StartedAt
	if s.LastRowAt != nil && s.LastRowAt.After(since) {
		since = *s.LastRowAt
	}
	if c.newest.After(since) {
		since = c.newest
	}
	silent := now.Sub(since)
	if silent < max(stallAfter, stallTimes*time.Duration(c.medianMS)*time.Millisecond) {
		return nil
	}
	look := "look at the inference server"
	if services := scoringServices(cfg); len(services) > 0 {
		look += ", at the scoring service " + strings.Join(services, " or ") + " (answers wait for their scores)"
	}
	return []status.Blocker{{Code: Stalled, Text: "stalled: no item was finished for " + figures.Duration(silent),
		Remedy: fmt.Sprintf("%s, and at `rollout explain %s`", look, s.Run)}}
}

// scoringServices returns the names of the services that the run's graders ask, in
// order and each once.
func scoringServices(cfg config.Run) []string {
	var names []string
	for _, g := range cfg.Grades {
		if g.Service != "" {
			names = append(names, g.Service)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
