package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

// Blocker is one thing that keeps a run from going on, or from going on faster.
type Blocker struct {
	Code   string `json:"code"`   // for programs. Example: "no_worker"
	Text   string `json:"text"`   // for people
	Remedy string `json:"remedy"` // what to do; "" if it passes by itself
}

// The codes of what holds a run up.
const (
	NotPickedUp     = "not_taken_up" // no function has looked at it
	IsPaused        = "paused"
	IsPausing       = "pausing"
	NoInput         = "no_input" // the plan can't go on
	IsPlanning      = "planning" // nothing is cut yet
	NoWorker        = "no_worker"
	NoEngine        = "engine_away"
	NoServer        = "server_away" // one of several
	AllDraining     = "draining"
	BusyElsewhere   = "busy_elsewhere" // the pool answers other runs
	LostWorker      = "worker_lost"
	Stalled         = "stalled"
	FrontierBlocked = "frontier" // one shard keeps all others back
	IsEnding        = "ending"
)

// How long things may take before they hold a run up.
const (
	pickupLocal      = 5 * time.Second
	pickupCloud      = 30 * time.Second // in a cloud, whose functions may have to start first
	stallAfter       = 10 * time.Second // without a row, or this many medians
	stallTimes       = 4
	reassignWithin   = 15 * time.Second // that a dead worker's shards may take to move on
	launchFailureAge = 30 * time.Minute // that a machine which could not come up says something: its fleet tries again
)

// blockers says what holds up a run that has not ended, the worst first.
func blockers(p Progress, s Status, now time.Time) []Blocker {
	st, id := p.State, s.Run
	if waited := now.Sub(s.CreatedAt); st.SavedAt.IsZero() && waited >= pickupTime(p.Cloud) {
		if packed(p.Manifest) && anyAlive(p.Workers) {
			return []Blocker{{IsPlanning, "its input is being unpacked", ""}}
		}
		return []Blocker{{NotPickedUp, "nobody has begun with it for " + span(waited), startHint(p.Cloud)}}
	}
	switch st.Phase {
	case run.Pausing:
		return []Blocker{{IsPausing, "it is being paused: requests in flight may end", ""}}
	case run.Paused, run.Interrupted:
		text := words(st.Phase)
		if st.Message != "" {
			text += ": " + st.Message
		}
		return []Blocker{{IsPaused, text, fmt.Sprintf("`rollout resume %s` lets it go on", id)}}
	case run.Ending:
		return []Blocker{{IsEnding, "it ends (" + string(st.Reason) + "): requests in flight have until " + st.GraceUntil.UTC().Format(time.TimeOnly), ""}}
	case run.Finalizing:
		return []Blocker{{IsEnding, "all rows are in: its files are being written", ""}}
	}
	var out []Blocker
	if p.Plan.Problem != "" {
		out = append(out, Blocker{NoInput, "the plan can't go on: " + p.Plan.Problem, ""})
	}
	out = append(out, poolBlockers(p, s, now)...)
	if len(out) == 0 && s.Shards.Total == 0 {
		out = append(out, Blocker{IsPlanning, fmt.Sprintf("its input is being cut: %d of %d ranges", p.Plan.Merged, p.Plan.Total), ""})
	}
	if st.Warning != "" {
		out = append(out, Blocker{FrontierBlocked, st.Warning, ""})
	}
	return out
}

// poolBlockers looks at who could work on the run, and does not.
func poolBlockers(p Progress, s Status, now time.Time) (out []Blocker) {
	var alive, away, draining, here, elsewhere, median int
	var why WorkerStatus
	var newest time.Time // of the workers that hold its shards
	for _, w := range p.Workers {
		mine := holdsOf(w, s.Run)
		if !w.Alive {
			if silent := now.Sub(w.HeartbeatAt); mine > 0 && w.State != health.Gone && silent < reassignWithin {
				out = append(out, Blocker{LostWorker, fmt.Sprintf("worker %s was last heard of %s ago and holds %s: others will take over", w.Worker, span(silent), shards(mine)), ""})
			}
			continue
		}
		if w.Pool != s.Pool {
			continue
		}
		alive++
		switch {
		case w.Engine == EngineAway:
			away++
			why = w
		case w.State == health.Draining:
			draining++
		}
		switch {
		case mine > 0:
			here++
			median = max(median, int(w.Load.MedianMS))
			if w.StartedAt.After(newest) {
				newest = w.StartedAt
			}
		case len(w.Holds) > 0:
			elsewhere++
		}
	}
	switch {
	case alive == 0:
		text := fmt.Sprintf("no worker of pool %s is alive", s.Pool)
		if ago := now.Sub(p.Fleet.AbsentAt); p.Fleet.Absent != "" && ago < launchFailureAge {
			text += fmt.Sprintf("; a machine could not come up %s ago: %s", span(ago), p.Fleet.Absent)
		}
		return append(out, Blocker{NoWorker, text, workerHint(p.Cloud, s.Pool)})
	case away > 0:
		of := ""
		if alive > 1 {
			of = fmt.Sprintf(" of %d of %d workers", away, alive)
		}
		return append(out, Blocker{NoEngine, fmt.Sprintf("the inference server%s has been away for %s: %s", of, span(now.Sub(why.Load.UnavailableSince)), why.Load.UnavailableReason),
			"start the server, or correct its address: the run then goes on by itself"})
	case draining == alive:
		return append(out, Blocker{AllDraining, fmt.Sprintf("all workers of pool %s are draining", s.Pool), replacementHint(p.Cloud)})
	case here == 0 && elsewhere > 0:
		return append(out, Blocker{BusyElsewhere, fmt.Sprintf("the workers of pool %s answer other runs first", s.Pool), "wait, pause those, or start more workers"})
	}
	out = append(out, serversAway(p, s)...)
	return append(out, stalled(s, median, newest, now)...)
}

// serversAway says which of several inference servers get no requests.
func serversAway(p Progress, s Status) []Blocker {
	away := map[string]string{}
	all := map[string]bool{}
	for _, w := range p.Workers {
		if !w.Alive || w.Pool != s.Pool {
			continue
		}
		for _, v := range w.Load.Servers {
			all[v.Name] = true
			if v.State == serverOpen || v.State == serverHalfOpen {
				away[v.Name] = v.LastError
			}
		}
	}
	if len(away) == 0 || len(all) < 2 {
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(away)) {
		names = append(names, name+": "+away[name])
	}
	return []Blocker{{NoServer, fmt.Sprintf("%d of %d inference servers get no requests: %s", len(away), len(all), strings.Join(names[:min(len(names), maxNamed)], "; ")),
		"start them again: the others answer meanwhile"}}
}

// The states of a server's circuit breaker in which it gets no requests.
const (
	serverOpen     = "open"
	serverHalfOpen = "half_open"
)

// stalled says if nothing was finished for longer than requests take.
func stalled(s Status, medianMS int, newest, now time.Time) []Blocker {
	if s.StartedAt == nil || s.Shards.Running == 0 || s.Kind == config.KindTrain { // whose one item takes what it takes
		return nil
	}
	since := *s.StartedAt
	if s.LastRowAt != nil && s.LastRowAt.After(since) {
		since = *s.LastRowAt
	}
	if newest.After(since) { // who has just begun has no row yet
		since = newest
	}
	silent := now.Sub(since)
	if silent < max(stallAfter, stallTimes*time.Duration(medianMS)*time.Millisecond) {
		return nil
	}
	return []Blocker{{Stalled, fmt.Sprintf("stalled: no item was finished for %s", span(silent)),
		fmt.Sprintf("look at the inference server, and at `rollout explain %s`", s.Run)}}
}

func packed(m record.Manifest) bool {
	return slices.ContainsFunc(m.Inputs, func(in record.Input) bool { return in.Packed != "" })
}

func anyAlive(ws []WorkerStatus) bool {
	return slices.ContainsFunc(ws, func(w WorkerStatus) bool { return w.Alive })
}

func anyAliveOf(ws []WorkerStatus, pool string) bool {
	return slices.ContainsFunc(ws, func(w WorkerStatus) bool { return w.Alive && w.Pool == pool })
}

func holdsOf(w WorkerStatus, id identity.RunID) (n int) {
	for _, h := range w.Holds {
		if h.Run == id {
			n++
		}
	}
	return n
}

func shards(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

// span renders a duration for people, to the second.
func span(d time.Duration) string { return max(0, d).Round(time.Second).String() }
