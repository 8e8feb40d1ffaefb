package status

import (
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// maxSaveAge is how long ago coordinate may have saved its last progress for
// the average since the start to be shown as the present rate.
const maxSaveAge = 30 * time.Second

// setRates sets Rate, TokenRate and ETASeconds by the rules of their comments.
func (s *Status) setRates(w heldWork, st run.State, now time.Time) {
	running := s.Phase == run.Running || s.Phase == run.Planning
	if running && w.away > 0 && w.away == w.workers {
		return // the rate so far says nothing about what comes
	}
	switch {
	case running && w.hasRates():
		s.Rate, s.TokenRate = &w.rate, &w.tokenRate
	case s.StartedAt == nil || s.Items.Committed() == 0:
		return
	case running && now.Sub(st.SavedAt) < maxSaveAge:
		s.Rate, s.TokenRate = s.average(now)
	case s.EndedAt != nil:
		s.Rate, s.TokenRate = s.average(*s.EndedAt)
	}
	if s.Rate == nil || *s.Rate <= 0 || !running || !s.Items.Planned {
		return
	}
	left := float64(s.Items.Total-min(s.Items.Total, s.Items.Processed())) / *s.Rate
	s.ETASeconds = &left
}

// average returns the rates from the start until then; nil if the clocks of
// several machines leave no time between the two, and for a retry, whose counts have the
// rows that it keeps from its parent.
func (s *Status) average(until time.Time) (items, tokens *float64) {
	seconds := until.Sub(*s.StartedAt).Seconds()
	if seconds <= 0 || s.Parent != nil {
		return nil, nil
	}
	i, t := float64(s.Items.Committed())/seconds, float64(s.Tokens.Completion)/seconds
	return &i, &t
}

// heldWork is what living workers hold of one run.
type heldWork struct {
	workers, away   int // that hold shards of it; of them those whose engine is away
	shards          int
	rows            uint64
	rate, tokenRate float64 // the run's share
	rowAt           time.Time
}

// hasRates reports whether the workers' rates are meaningful: from the first
// row on.
func (w heldWork) hasRates() bool { return w.shards > 0 && !w.rowAt.IsZero() }

// heldBy sums up what living workers report about a run.
func heldBy(id identity.RunID, workers []WorkerStatus) (out heldWork) {
	for _, w := range workers {
		if !w.Alive {
			continue
		}
		mine := 0
		for _, h := range w.Holds {
			if h.Run == id {
				mine++
				out.rows += uint64(max(0, h.Rows))
			}
		}
		if mine == 0 {
			continue
		}
		out.workers++
		if w.Engine == EngineAway {
			out.away++
		}
		own := loadOf(id, w, mine)
		out.shards += mine
		out.rate += own.Rate
		out.tokenRate += own.TokenRate
		if own.RowAt.After(out.rowAt) {
			out.rowAt = own.RowAt
		}
	}
	return out
}

// loadOf returns what the run has of a worker, of which it holds that many shards. Workers
// of versions before RunLoad tell it only where they hold shards of one run alone.
func loadOf(id identity.RunID, w WorkerStatus, shards int) health.RunLoad {
	own, ok := w.Load.Of(id)
	if l := w.Load; !ok && shards == len(w.Holds) {
		return health.RunLoad{Run: id, InFlight: l.InFlight, Rate: l.Rate, TokenRate: l.TokenRate, RowAt: l.RowAt}
	}
	return own
}

// Training is the progress of a training.
type Training struct {
	Step  int `json:"step"` // optimizer steps taken
	Steps int `json:"steps"`
	// Loss of the last step, in nats; null before the first. As of a snapshot it
	// is the mean of the last steps.
	Loss *float64 `json:"loss"`
	// TokensPerSecond go through the model; null while no worker trains.
	TokensPerSecond *float64 `json:"tokens_per_second"`
	// Snapshot is the id of the last snapshot, from which another worker resumes
	// if this one is lost; "" before the first.
	Snapshot string `json:"snapshot"`
	// SnapshotStep is the step after which the snapshot was taken.
	SnapshotStep int `json:"snapshot_step"`
}

// setTraining sets the progress of a training and its ETA, and replaces the
// rates: a training has a single item, whose rate is meaningless.
func (s *Status) setTraining(p Progress) {
	if !p.Kind.Trains {
		return
	}
	s.Rate, s.TokenRate, s.ETASeconds = nil, nil, nil
	var t Training
	known := false
	if k := p.Snapshot; k != nil {
		t, known = Training{Step: k.Step, Steps: k.Steps, Loss: k.Loss, Snapshot: k.ID, SnapshotStep: k.Step}, true
	}
	for _, w := range p.Workers {
		for _, h := range w.Holds {
			if !w.Alive || h.Run != s.Run || h.Training == nil || s.Phase.Ended() {
				continue
			}
			now := h.Training
			t.Step, t.Steps, t.Loss, known = now.Step, now.Steps, now.Loss, true
			if now.TokenRate > 0 {
				t.TokensPerSecond, s.TokenRate = &now.TokenRate, &now.TokenRate
			}
			if now.StepRate > 0 && s.Phase == run.Running {
				left := float64(now.Steps-now.Step) / now.StepRate
				s.ETASeconds = &left
			}
		}
	}
	if known {
		s.Training = &t
	}
}
