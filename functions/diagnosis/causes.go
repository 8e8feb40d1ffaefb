package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/run"
	"rollout/shared/figures"
	"rollout/shared/record"
)

// The codes of causes that are not blockers: the run goes on, but slowly.
const (
	ServerFull       = "server_full"   // as many requests as are allowed are at the server
	FewLeft          = "few_left"      // the last items are being answered
	Starved          = "starved"       // workers have room for requests, and no items
	ServerFaults     = "server_faults" // requests end in faults
	HighFailureRate  = "many_fail"
	Suspects         = "suspects"
	ShardsReassigned = "taken_over" // shards had several holders
	TokensWasted     = "tokens_wasted"
	DeadlineAtRisk   = "too_late" // the deadline comes before the end
)

// workerTotals sums up the living workers of the pools that a run needs.
type workerTotals struct {
	workers         int
	busy, limit     int // requests in flight, and at most
	rate, tokenRate float64
	median          time.Duration // of the slowest worker
	faults, rows    int64
	lastFault       string
	// servers is how many servers the worker with the most servers uses. waiting
	// is how many requests wait at those servers; negative if none reports it.
	servers, waiting int
}

func sumWorkers(p status.Progress, pools []string) (c workerTotals) {
	c.waiting = -1
	for _, w := range p.Workers {
		if !w.Alive || !slices.Contains(pools, w.Pool) {
			continue
		}
		c.workers++
		c.busy += w.Load.InFlight
		c.limit += w.InFlight
		c.rate += w.Load.Rate
		c.tokenRate += w.Load.TokenRate
		c.faults += w.Load.Faults
		c.rows += w.Load.Rows
		c.median = max(c.median, time.Duration(w.Load.MedianMS)*time.Millisecond)
		if w.Load.LastFault != "" {
			c.lastFault = w.Load.LastFault
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

// fullRemedy is what to do about servers that get as many requests as are
// allowed. It depends on whether requests wait at the servers.
func (c workerTotals) fullRemedy() string {
	const (
		bound = "the server is the bound: make answers shorter (max_tokens), or add a server"
		room  = "allow more at once (in_flight in [worker], or leave it out: then it is found)"
	)
	switch {
	case c.waiting > 0:
		return figures.OfMany(c.waiting, "request waits", "requests wait") + " at the server: " + bound
	case c.waiting == 0:
		return "no request waits at the server: " + room
	}
	return "if the server has requests waiting already (its metrics say), " + bound + "; if none wait, " + room
}

// causes returns why the run is not done, or not done faster, with the numbers
// that show it: first its blockers, then what makes it slow.
func causes(p status.Progress, e Explanation, now time.Time) []status.Blocker {
	s := e.Run
	out := append([]status.Blocker{}, s.Blockers...)
	if s.Phase != run.Running && s.Phase != run.Planning {
		return append(out, itemFailures(p.Manifest, s)...)
	}
	c := sumWorkers(p, p.Manifest.NeededPools(p.State))
	// An engine that is away already explains the speed and the faults, and a limit the
	// speed.
	has := func(code string) bool {
		return slices.ContainsFunc(out, func(b status.Blocker) bool { return b.Code == code })
	}
	if c.workers > 0 && !has(NoEngine) && !p.Kind.Trains {
		if !has(Limited) {
			out = append(out, c.throughput(s)...)
		}
		out = append(out, c.serverFaults()...)
	}
	out = append(out, shardTrouble(e)...)
	out = append(out, itemFailures(p.Manifest, s)...)
	return append(out, deadlineRisk(s, now)...)
}

// fullShare is the share of the allowed requests from which on the servers
// count as full.
const fullShare = 0.9

// throughput returns what bounds the rate: the server, or the supply of items.
func (c workerTotals) throughput(s status.Status) []status.Blocker {
	left := s.Items.Total - min(s.Items.Total, s.Items.Processed())
	full := float64(c.busy) >= fullShare*float64(c.limit)
	switch {
	case c.median == 0 && c.busy == 0:
		return nil
	case c.median == 0:
		return []status.Blocker{{Code: ServerFull,
			Text:   "no request was answered yet: " + figures.OfMany(c.busy, "is", "are") + " at the inference server",
			Remedy: "wait for the first answers; if none come, look at the server's log"}}
	case full:
		most := max(float64(max(c.busy, c.limit))/c.median.Seconds(), c.rate)
		return []status.Blocker{{Code: ServerFull,
			Text: fmt.Sprintf("%s: %s at the inference server, which takes %s for one (median): "+
				"at most about %s, now %s and %s tokens/s", figures.Of(c.workers, "worker"), c.atOnce(),
				figures.Elapsed(c.median), speed(most), speed(c.rate), figures.Whole(c.tokenRate)),
			Remedy: c.fullRemedy()}}
	case s.Items.Planned && left <= uint64(c.limit):
		return []status.Blocker{{Code: FewLeft,
			Text: fmt.Sprintf("%s left, fewer than the %s at once that are allowed: the last ones are waited for "+
				"(%s each, median)", figures.OfMany(left, "item is", "items are"), figures.Of(c.limit, "request"),
				figures.Elapsed(c.median))}}
	}
	return []status.Blocker{{Code: Starved,
		Text: fmt.Sprintf("%s: %s used, with %s left: the workers wait for shards (%s sent, %s done, %s planned)",
			figures.Of(c.workers, "worker"), c.atOnce(), figures.Of(left, "item"), figures.Count(s.Shards.Dispatched),
			figures.Count(s.Shards.Done), figures.Count(s.Shards.Total)),
		Remedy: "if this lasts, the disk or the processor of this machine is the bound: " +
			"a larger [shard] items means fewer writes"}}
}

// serverFaults returns a cause if at least 5 % of the requests ended in faults.
func (c workerTotals) serverFaults() []status.Blocker {
	asked := c.faults + c.rows
	if c.faults == 0 || 20*c.faults < asked {
		return nil
	}
	remedy := "look at the inference server's log"
	if c.lastFault == "throttled" {
		remedy = "the server throttles (429 or 503): lower in_flight in [worker], or raise its limit"
	}
	return []status.Blocker{{Code: ServerFaults,
		Text: fmt.Sprintf("%s ended in a fault of the inference server, for %s with a row; the last: %s",
			figures.Of(c.faults, "request"), figures.Of(c.rows, "item"), c.lastFault),
		Remedy: remedy}}
}

// shardTrouble returns the causes that the open shards show: suspects and
// several holders.
func shardTrouble(e Explanation) (out []status.Blocker) {
	suspects, probation, reassigned := 0, 0, 0
	first := -1
	for _, t := range e.Shards {
		suspects += t.Suspects
		probation += len(t.OnProbation)
		if t.Suspects+len(t.OnProbation) > 0 && first < 0 {
			first = t.Shard
		}
		if t.Attempt > 1 {
			reassigned++
		}
	}
	if suspects+probation > 0 {
		out = append(out, status.Blocker{Code: Suspects,
			Text: fmt.Sprintf("%s may be what the inference server died of (the first in shard %d): "+
				"asked last, with nothing else at the server", figures.Of(max(suspects, probation), "item"), first),
			Remedy: "wait: an item of which it dies twice is put aside as poison, all others are answered"})
	}
	if reassigned > 0 {
		out = append(out, status.Blocker{Code: ShardsReassigned,
			Text:   figures.Of(reassigned, "shard") + " had several holders: workers drained, died, or gave them back",
			Remedy: "if workers keep dying, look at their logs"})
	}
	return out
}

// itemFailures returns the causes that the counts show: at least 5 % of the
// items failed, or at least a tenth as many tokens were wasted as used.
func itemFailures(m record.Manifest, s status.Status) (out []status.Blocker) {
	classes := slices.DeleteFunc(failedClasses(s), status.Unanswered)
	if n := s.Items.AtFault(); n > 0 && 20*n >= s.Items.Committed() && len(classes) > 0 {
		out = append(out, status.Blocker{Code: HighFailureRate,
			Text: fmt.Sprintf("%s of %s with a row failed, most as %s", figures.Count(n),
				figures.Of(s.Items.Committed(), "item"), classes[0]),
			Remedy: Advice(classes[0], againOf(m))})
	}
	if t := s.Tokens; t.Wasted > 0 && 10*t.Wasted >= t.Completion {
		out = append(out, status.Blocker{Code: TokensWasted,
			Text: fmt.Sprintf("%s went into answers that were not kept, %s into those that were",
				figures.Of(t.Wasted, "token"), figures.Count(t.Completion)),
			Remedy: "look at the classes of failed items, and at the server's log"})
	}
	return out
}

// deadlineRisk returns a cause if the run does not end before its deadline at
// the present rate.
func deadlineRisk(s status.Status, now time.Time) []status.Blocker {
	if s.Deadline == nil || s.ETASeconds == nil {
		return nil
	}
	late := now.Add(time.Duration(*s.ETASeconds * float64(time.Second))).Sub(*s.Deadline)
	if late <= 0 {
		return nil
	}
	return []status.Blocker{{Code: DeadlineAtRisk,
		Text: fmt.Sprintf("at %s it would end %s after its deadline: about %s would expire",
			speed(*s.Rate), figures.Duration(late), figures.Of(int64(max(1, late.Seconds()**s.Rate)), "item")),
		Remedy: "add workers or a server"}}
}

// atOnce begins a sentence about the allowed requests that are in flight: "4 of 64 requests at once are".
func (c workerTotals) atOnce() string {
	if c.busy > c.limit {
		return fmt.Sprintf("%s at once (the limit was lowered to %s) are", figures.Of(c.busy, "request"),
			figures.Count(c.limit))
	}
	return fmt.Sprintf("%s of %s", figures.Count(c.busy),
		figures.OfMany(c.limit, "request at once is", "requests at once are"))
}

// speed renders items per second: "12.5 items/s".
func speed(rate float64) string { return figures.Short(rate) + " items/s" }
