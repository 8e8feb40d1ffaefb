package worker

import (
	"time"

	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/shard"
)

// training is what a Shard knows of the training that it is. The rules, and
// what is written down of it, are shard.Doc's.
type training struct {
	kept     *shard.Snapshot  // the newest one that the document names
	vanished int              // holders in a row, when it was claimed
	now      *health.Training // for heartbeats
	stop     time.Duration    // how long an orderly stop takes; 0 if not known
}

// trains reports whether the shard is a training.
func (s *Shard) trains() bool { return s.Manifest.Kind == config.KindTrain }

// Snapshot returns the newest snapshot that the shard's document names; nil if
// it names none. Vanished is how many holders in a row died since.
func (s *Shard) Snapshot() (kept *shard.Snapshot, vanished int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.training.kept, s.training.vanished
}

// SaveSnapshot writes down that the next holder goes on from the snapshot. Fenced if
// the shard is not this worker's any more.
func (s *Shard) SaveSnapshot(snap shard.Snapshot) error {
	err := s.write(func(d shard.Doc) (shard.Doc, error) { return d.SaveSnapshot(s.holder, snap) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.kept, s.training.vanished = &snap, 0
	return nil
}

// ReportTraining says how far the training is, for heartbeats to tell.
func (s *Shard) ReportTraining(t health.Training) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.now = &t
}

// StopsIn says how long it takes at most from Stopping to a snapshot that is
// kept. A drain that leaves less time ends the context at once.
func (s *Shard) StopsIn(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.stop = d
}

// stopsWithin reports whether the training can stop in order in the time; it is
// taken to, as long as it has not said how long it takes.
func (s *Shard) stopsWithin(budget time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.training.stop <= budget
}

// told is how far the training is; nil if there is none.
func (s *Shard) told() *health.Training {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.training.now
}
