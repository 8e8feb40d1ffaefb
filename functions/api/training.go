package api

import (
	"context"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Training is how far a training is.
type Training struct {
	Step  int `json:"step"` // taken
	Steps int `json:"steps"`
	// Loss of the last step, in nats; null before the first. Of a snapshot: the
	// mean of the last steps.
	Loss *float64 `json:"loss"`
	// TokensPerSecond that go through the model; null while nobody trains.
	TokensPerSecond *float64 `json:"tokens_per_second"`
	// Snapshot is the last one: what is gone on from if the worker is lost; ""
	// before the first.
	Snapshot string `json:"snapshot"`
	// SnapshotStep is the step that it was taken after.
	SnapshotStep int `json:"snapshot_step"`
}

// setTraining tells how far a training is, and when it will be done. Rates of items
// say nothing of its one item.
func (s *Status) setTraining(p Progress) {
	if p.Manifest.Kind != config.KindTrain {
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

// snapshotOf returns the last snapshot of a training.
func (s *Service) snapshotOf(ctx context.Context, m record.Manifest) (*shard.Snapshot, error) {
	if m.Kind != config.KindTrain {
		return nil, nil
	}
	var d shard.Doc
	_, _, err := host.Load(ctx, s.ports.Docs, identity.ShardKey(m.Run, 0), &d)
	return d.Snapshot, err
}
