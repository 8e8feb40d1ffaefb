package api

import (
	"fmt"
	"slices"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/run"
)

// The codes of causes that are no hold-up: the run goes on, but slowly.
const (
	ServerFull       = "server_full"   // as many requests as are allowed are at the server
	FewLeft          = "few_left"      // the last items are waited for
	Starved          = "starved"       // workers have places, and no items
	ServerFaults     = "server_faults" // requests end in faults
	HighFailureRate  = "many_fail"
	Suspects         = "suspects"
	ShardsReassigned = "taken_over" // shards had several holders
	TokensWasted     = "tokens_wasted"
	DeadlineAtRisk   = "too_late" // the deadline comes first
)

// workerTotals is what the living workers of a run are and do together.
type workerTotals struct {
	workers, busy, places int
	rate, tokenRate       float64
	median                time.Duration // of the slowest
	faults, rows          int64
	fault                 string
	// Of the servers, as the one worker that sees most of them says; waiting
	// is negative if none tells.
	servers, waiting int
}

func sumWorkers(p Progress, id string) (c workerTotals) {
	c.waiting = -1
	for _, w := range p.Workers {
		if !w.Alive || w.Pool != id {
			continue
		}
		c.workers++
		c.busy += w.Load.InFlight
		c.places += w.InFlight
		c.rate += w.Load.Rate
		c.tokenRate += w.Load.TokenRate
		c.faults += w.Load.Faults
		c.rows += w.Load.Rows
		c.median = max(c.median, time.Duration(w.Load.MedianMS)*time.Millisecond)
		if w.Load.LastFault != "" {
			c.fault = w.Load.LastFault
		}
		if n := len(w.Load.Servers); n > c.servers {
			c.servers, c.waiting = n, -1
			for _, v := range w.Load.Servers {
				if v.Waiting >= 0 {
					c.waiting = max(0, c.waiting) + v.Waiting
				}
			}
		}
	}
	return c
}

// advice is what to do about servers that get all the requests that may be
// made at once: it depends on whether requests wait there.
func (c workerTotals) advice() string {
	const (
		bound = "the server is the bound: make answers shorter (max_tokens), or add a server"
		room  = "allow more at once (in_flight in [worker], or leave it out: then it is found)"
	)
	switch {
	case c.waiting > 0:
		return fmt.Sprintf("%d requests wait at the server: %s", c.waiting, bound)
	case c.waiting == 0:
		return "no request waits at the server: " + room
	}
	return "if the server has requests waiting already (its metrics say), " + bound + "; if none wait, " + room
}

// diagnose are why the run is not done, or not done faster, with what speaks for
// each: what holds it up, then what makes it slow.
func diagnose(p Progress, e Explanation, now time.Time) []Blocker {
	s := e.Run
	out := append([]Blocker{}, s.Blockers...)
	if s.Phase != run.Running && s.Phase != run.Planning {
		return append(out, itemFailures(s)...)
	}
	c := sumWorkers(p, s.Pool)
	away := slices.ContainsFunc(out, func(h Blocker) bool { return h.Code == NoEngine })
	if c.workers > 0 && !away && s.Kind != config.KindTrain { // else its speed and its faults are told already
		out = append(out, c.throughputBlockers(s)...)
		out = append(out, c.serverFaults()...)
	}
	out = append(out, shardTrouble(e)...)
	out = append(out, itemFailures(s)...)
	return append(out, deadlineRisk(s, now)...)
}

// nearlyAll is the share of the places from which on they count as full.
const nearlyAll = 0.9

// throughputBlockers says what bounds the rate: the server, or what the workers get to do.
func (c workerTotals) throughputBlockers(s Status) []Blocker {
	left := s.Items.Total - min(s.Items.Total, s.Items.Processed())
	full := float64(c.busy) >= nearlyAll*float64(c.places)
	switch {
	case c.median == 0: // nothing was answered yet
		if c.busy == 0 {
			return nil
		}
		return []Blocker{{ServerFull, fmt.Sprintf("no request was answered yet: %d are at the inference server", c.busy),
			"wait for the first answers; if none come, look at the server's log"}}
	case full:
		most := float64(c.places) / c.median.Seconds()
		return []Blocker{{ServerFull, fmt.Sprintf("%s: %d of %d requests at once are at the inference server, which takes %s for one (median): at most about %s, now %s and %.0f tokens/s",
			workers(c.workers), c.busy, c.places, tenths(c.median), speed(most), speed(c.rate), c.tokenRate),
			c.advice()}}
	case s.Items.Planned && left <= uint64(c.places):
		return []Blocker{{FewLeft, fmt.Sprintf("%d items are left, fewer than the %d requests at once that are allowed: the last ones are waited for (%s each, median)", left, c.places, tenths(c.median)), ""}}
	}
	return []Blocker{{Starved, fmt.Sprintf("%s: %d of %d requests at once are used, with %d items left: the workers wait for shards (%d sent, %d done, %d planned)",
		workers(c.workers), c.busy, c.places, left, s.Shards.Dispatched, s.Shards.Done, s.Shards.Total),
		"if this lasts, the disk or the processor of this machine is the bound: a larger [shard] items means fewer writes"}}
}

// serverFaults says if many requests end in faults.
func (c workerTotals) serverFaults() []Blocker {
	asked := c.faults + c.rows
	if c.faults == 0 || 20*c.faults < asked {
		return nil
	}
	remedy := "look at the inference server's log"
	if c.fault == "throttled" {
		remedy = "it refuses for now (429 or 503): lower in_flight in [worker], or raise its limit"
	}
	return []Blocker{{ServerFaults, fmt.Sprintf("%d requests ended in a fault of the inference server, for %d items with a row; the last: %s", c.faults, c.rows, c.fault), remedy}}
}

// shardTrouble says what the open shards went through.
func shardTrouble(e Explanation) (out []Blocker) {
	suspects, trying, again := 0, 0, 0
	first := -1
	for _, t := range e.Shards {
		suspects += t.Suspects
		trying += len(t.OnProbation)
		if t.Suspects+len(t.OnProbation) > 0 && first < 0 {
			first = t.Shard
		}
		if t.Attempt > 1 {
			again++
		}
	}
	if suspects+trying > 0 {
		out = append(out, Blocker{Suspects, fmt.Sprintf("%d items may be what the inference server died of (the first in shard %d): they are asked last, with nothing else at the server", max(suspects, trying), first),
			"wait: an item of which it dies twice is put aside as poison, all others are answered"})
	}
	if again > 0 {
		out = append(out, Blocker{ShardsReassigned, fmt.Sprintf("%s had several holders: workers drained, died, or gave them back", shards(again)), "if workers keep dying, look at their logs"})
	}
	return out
}

// itemFailures says if the run's items fail, or its tokens are wasted.
func itemFailures(s Status) (out []Blocker) {
	classes := slices.DeleteFunc(failedClasses(s), Unanswered)
	if n := s.Items.AtFault(); n > 0 && 20*n >= s.Items.Committed() && len(classes) > 0 {
		out = append(out, Blocker{HighFailureRate, fmt.Sprintf("%d of %d items that have a row failed, most as %s", n, s.Items.Committed(), classes[0]), Advice(classes[0])})
	}
	if t := s.Tokens; t.Wasted > 0 && 10*t.Wasted >= t.Completion {
		out = append(out, Blocker{TokensWasted, fmt.Sprintf("%d tokens went into answers that were not kept, %d into those that were", t.Wasted, t.Completion), "look at the classes of failed items, and at the server's log"})
	}
	return out
}

// deadlineRisk says if the deadline comes first at this rate.
func deadlineRisk(s Status, now time.Time) []Blocker {
	if s.Deadline == nil || s.ETASeconds == nil {
		return nil
	}
	over := now.Add(time.Duration(*s.ETASeconds * float64(time.Second))).Sub(*s.Deadline)
	if over <= 0 {
		return nil
	}
	return []Blocker{{DeadlineAtRisk, fmt.Sprintf("at %s it would end %s after its deadline: about %.0f items would expire", speed(*s.Rate), span(over), over.Seconds()**s.Rate),
		"add workers or a server"}}
}

func workers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}

// speed renders items a second with two digits, or all that stand before the point.
func speed(rate float64) string {
	if rate >= 10 {
		return fmt.Sprintf("%.0f items/s", rate)
	}
	return fmt.Sprintf("%.2g items/s", rate)
}

// tenths renders a duration to the tenth of a second.
func tenths(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
