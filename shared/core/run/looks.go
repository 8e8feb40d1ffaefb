package run

// A run may prune variants by what their first shards came to. It is looked at so many times,
// each time at a place of its plan:
//
//	shards  0 ░░░░░░░░│░░░░░░░░│░░░░░░░░│▓▓▓▓▓▓▓▓│ · · ·      ░ done  ▓ sent
//	              look 1   look 2   look 3        │
//	                                        look 3 is decided before this shard is sent
//
// A look reads the results of all shards before its place, and what it prunes takes effect at the
// place of the next one. Dispatch goes no further than that before the look is decided. So the
// shards that are sent are a function of the plan and of the results, whatever the timing and the
// number of workers. Planning decides the looks: see Replan.

// Looks is how far the looks of a run are, by plan/<run>. The zero value is that of a run without
// looks, and of one whose looks are all decided.
type Looks struct {
	Decided int
	// Next is the place of the next look, which reads the shards before it; 0 if none is left.
	Next int
	// Limit is the first shard that is not sent before the next look is decided; 0 if none is
	// left.
	Limit int
}

// limit returns how many of the planned shards may be sent.
func (l Looks) limit(planned int) int {
	if l.Limit == 0 {
		return planned
	}
	return min(l.Limit, planned)
}

// mayBeSent returns how many shards may be sent by now.
func (d *decider) mayBeSent() int { return d.world.Looks.limit(d.Shards) }

// countLooks notes how many looks are decided. What is decided after the run's end has begun does
// not count.
func (d *decider) countLooks() {
	if d.Reason == "" {
		d.Looks = max(d.Looks, d.world.Looks.Decided)
	}
}

// lookOutstanding reports whether a look is asked for and not decided.
func (s State) lookOutstanding() bool { return s.LooksAsked > s.Looks && s.Reason == "" }

// lookDue reports whether the next look must be asked for, which is the case once, when all
// shards that it reads are done. It notes that it is asked for.
func (d *decider) lookDue() bool {
	next := d.world.Looks.Next
	if next == 0 || !d.Phase.dispatches() || d.State.Done.Frontier() < next || d.lookOutstanding() {
		return false
	}
	d.LooksAsked = d.Looks + 1
	return true
}
