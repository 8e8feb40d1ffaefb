package worker

import (
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/shard"
)

// training is the state of a Shard that is a training. Its rules, and what of it
// is stored, belong to shard.Doc.
type training struct {
	snapshot *shard.Snapshot  // the newest one that the document names
	vanished int              // consecutive holders that died since, at the claim
	progress *health.Training // for heartbeats; nil before the first report
	stopTime time.Duration    // of an orderly stop; 0 if not known
}

// Snapshot returns the newest snapshot that the shard's document names, or nil,
// and how many consecutive holders have died since it was saved.
func (s *Shard) Snapshot() (newest *shard.Snapshot, vanished int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.training.snapshot, s.training.vanished
}

// SaveSnapshot names the snapshot in the shard's document: the next holder
// resumes from it. It returns Fenced if another worker holds the shard.
func (s *Shard) SaveSnapshot(snap shard.Snapshot) error {
	err := s.write(func(d shard.Doc) (shard.Doc, error) { return d.SaveSnapshot(s.holder, snap) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.snapshot, s.training.vanished = &snap, 0
	return nil
}

// ReportTraining sets the training's progress in the next heartbeats.
func (s *Shard) ReportTraining(t health.Training) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.progress = &t
}

// ReportStopTime says how long it takes at most from Stopping to a saved
// snapshot. A drain with less time cancels the context at once.
func (s *Shard) ReportStopTime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.stopTime = d
}

// stopsWithin reports whether the training can stop in an orderly way within the
// budget. A training that has not reported its stop time is assumed to.
func (s *Shard) stopsWithin(budget time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.training.stopTime <= budget
}

// trainingProgress returns the last report; nil before the first.
func (s *Shard) trainingProgress() *health.Training {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.training.progress
}
