package status

import (
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
)

// finishReasons counts the committed answers by finish reason, if there is any other
// than stop, or the run has ended: its end brings the stops as well. Copies of answers
// are not counted, and are not told apart before the end: a run that has some counts no
// stops.
func finishReasons(p Progress) map[string]int {
	if p.Kind.Trains || len(p.State.Counts.Finish) == 0 {
		return nil
	}
	copies := 0
	if p.Manifest.Config.Dedupe.Enabled {
		copies = p.State.Counts.OK
	}
	return p.State.Counts.FinishReasons(copies)
}

// CutAtLength returns how many answers were cut because their tokens were used up.
func (s Status) CutAtLength() int {
	n := 0
	for _, reason := range dialect.CutReasons() {
		n += s.FinishReasons[reason]
	}
	return n
}

// MostlyCut reports whether more than half of the answers were cut at a length.
func (s Status) MostlyCut() bool { return 2*s.CutAtLength() > int(s.Items.Done) }

// HasFinishReasons reports whether some answers ended in another way than by the
// model's own end.
func (s Status) HasFinishReasons() bool {
	for reason := range s.FinishReasons {
		if reason != shard.FinishStop && reason != shard.FinishNone {
			return true
		}
	}
	return false
}
