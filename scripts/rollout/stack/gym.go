package stack

import (
	"context"
	"sync"

	"rollout/shared/config"
	"rollout/shared/record"
)

// gym is the workers that train. An installation whose config declares none has
// them all the same, but they are started only when there is something to
// train: most never do.
type gym struct {
	once   sync.Once
	needed chan struct{} // closed when they are
	ended  chan struct{} // closed when they are gone, or never came
}

// noteTraining hears of every open run.
func (s *Stack) noteTraining(m record.Manifest) {
	if m.Kind == config.KindTrain {
		s.gym.once.Do(func() { close(s.gym.needed) })
	}
}

// train runs the workers that train until the stack stops, once they are
// needed. One of them is enough for what nobody declared: a training takes all
// processors.
func (s *Stack) train(ctx context.Context) {
	defer close(s.gym.ended)
	pool, declared := s.o.Deployment.TrainPool()
	var workers sync.WaitGroup
	defer workers.Wait()
	if declared {
		s.startPool(ctx, &workers, pool.Name)
		return
	}
	select {
	case <-s.gym.needed:
	case <-s.stopping:
		return
	case <-ctx.Done():
		return
	}
	if s.o.Workers == 0 {
		workers.Go(func() { s.fail(s.worker(ctx, pool.Name)) })
		return
	}
	workers.Go(func() { s.fail(s.supervise(ctx, pool.Name)) })
}
