package config

import "math"

// checkReflection checks how a rollout's guidance is improved.
func (r Run) checkReflection(c *checker, at string) {
	epochs := valueOr(r.Rollout, DefaultRollout).Epochs
	c.integer(under(at, "rollout.epochs"), &epochs, 1, maxEpochs, "")
	if r.Reflection == nil {
		if epochs > 1 {
			c.add(under(at, "rollout.epochs"), "without [reflection] the guidance stays as it is, and every epoch would get "+
				"the same answers: set 1, or add [reflection]")
		}
		if r.Gate != nil {
			c.add(under(at, "gate"), "has no effect without [reflection]: add it, or remove the table")
		}
		return
	}
	r.Reflection.check(c, under(at, "reflection"))
	if r.Reflection.Pareto != 0 && r.GateOf().Off {
		c.add(under(at, "reflection.pareto"), "needs the gate, whose tickets tell what a guidance is best for: "+
			"remove gate.off, or remove pareto")
	}
	r.GateOf().check(c, under(at, "gate"), r.Reflection.Candidates)
}

func (r Reflection) check(c *checker, at string) {
	c.integer(at+".batch_size", &r.BatchSize, 1, maxReflectionBatch, "")
	c.text(at+".model", r.Model, maxText)
	r.ReflectionSampling().check(c, at+".sampling")
	if r.ReflectionSampling().N != nil {
		c.add(at+".sampling.n", "does not apply: set candidates")
	}
	if r.ReflectionSampling().Seed != nil {
		c.add(at+".sampling.seed", "does not apply: each request of a reflection has a seed made from rollout.seed")
	}
	r.Request.check(c, at+".request", false)
	if r.Request != nil && !takesChats(r.Request.Endpoint) {
		c.add(at+".request.endpoint", "a reflection is a chat: use \"chat\" or \"responses\", or a path of one of them")
	}
	c.integer(at+".candidates", &r.Candidates, 1, maxCandidates, "")
	c.integer(at+".pareto", &r.Pareto, 0, maxPareto, "; 0 is off")
	if r.Pareto == 1 {
		c.add(at+".pareto", "keeps a single guidance, which is no choice: set 2 or more, or 0 for the present one alone")
	}
	c.integer(at+".max_entries", &r.MaxEntries, 1, maxEntries, "")
	c.integer(at+".max_entry_bytes", &r.MaxEntryBytes, 20, maxText, "")
	c.integer(at+".max_tokens", &r.MaxTokens, 10, maxGuidanceTokens, "")
	c.integer(at+".max_operations", &r.MaxOperations, 1, maxPlanOperations, "")
	c.integer(at+".stop_after", &r.StopAfter, 1, maxFailures, "")
}

func (g Gate) check(c *checker, at string, candidates int) {
	without := DefaultGate()
	without.Off, without.HoldoutShare = true, g.HoldoutShare
	if g.Off && g != without {
		c.add(at+".off", "leaves the other keys of the table but holdout_share without effect: remove them, or remove off")
	}
	c.float(at+".share", &g.Share, above(0), atMost(maxAside))
	c.float(at+".holdout_share", &g.HoldoutShare, atLeast(0), atMost(0.5))
	if g.Share+g.HoldoutShare > maxAside { // groups stay whole, so that half as many again may be set aside
		c.add(at+".share", "leaves too few tickets to learn from: it may be at most %v together with holdout_share", maxAside)
	}
	c.integer(at+".tickets", &g.Tickets, 2, maxGateTickets, "")
	c.float(at+".alpha", &g.Alpha, above(0), atMost(0.5))
	c.integer(at+".resamples", &g.Resamples, 1, 1_000_000, "")
	c.integer(at+".min_tickets", &g.MinTickets, 0, maxGateTickets, "")
	if g.Tickets < g.MinTickets || math.Exp2(float64(-g.Tickets))*float64(candidates) > g.Alpha {
		c.add(at+".tickets", "is too low: with %d tickets and a min_tickets of %d, no candidate out of %d could be accepted",
			g.Tickets, g.MinTickets, candidates)
	}
	c.float(at+".min_gain", &g.MinGain, atLeast(0), atMost(1))
	c.float(at+".max_broken", &g.MaxBroken, atLeast(0), atMost(1))
	if g.Alpha > 0 && float64(g.Resamples+1)*g.Alpha < float64(candidates) {
		c.add(at+".resamples", "is too low for an alpha of %v over %d candidates: set at least %v", g.Alpha, candidates,
			float64(candidates)/g.Alpha)
	}
}
