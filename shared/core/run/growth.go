package run

// A plan may grow: the run's kind appends ranges that depend on results. The run
// requests the next range once all shards that are planned so far are done:
//
//	planned ─▶ dispatched ─▶ all done ─▶ Replan ─▶ a further range, and again
//	                                        └────▶ the plan is complete ─▶ Finalizing

// PlanOutstanding reports whether planning has something to do now. It has not
// while a plan that may grow waits for the results of what is planned. It has while a
// look is asked for.
func (s State) PlanOutstanding() bool {
	return !s.Complete && (!s.Growing || s.plannedDone()) || s.lookOutstanding()
}

// plannedDone reports whether every shard that is planned so far is done.
func (s State) plannedDone() bool { return s.Done.Frontier() >= s.Shards }

// growthDue reports whether a plan must be asked to grow, which is the case once for
// each of its sizes. It notes that the plan is asked.
func (d *decider) growthDue() bool {
	if !d.Growing || !d.plannedDone() || !d.Phase.dispatches() || d.GrowthAsked >= d.world.Sources {
		return false
	}
	d.GrowthAsked = d.world.Sources
	return true
}
