package standalone

import (
	"context"
	"sync"

	"rollout/shared/config"
	"rollout/shared/record"
)

// trainingWorkers is the workers that train. An installation whose config declares none has
// them all the same, but they are started only when there is something to
// train: most never do.
type trainingWorkers struct {
	once   sync.Once
	needed chan struct{} // closed when they are
	ended  chan struct{} // closed when they are gone, or never came
}

// noteTraining hears of every open run.
func (s *Runtime) noteTraining(m record.Manifest) {
	if m.Kind == config.KindTrain {
		s.trainingWorkers.once.Do(func() { close(s.trainingWorkers.needed) })
	}
}

// train runs the workers that train until the stack stops, once they are
// needed. One of them is enough for what nobody declared: a training takes all
// processors.
func (s *Runtime) train(ctx context.Context) {
	defer close(s.trainingWorkers.ended)
	pool, declared := s.o.Deployment.TrainPool()
	var workers sync.WaitGroup
	defer workers.Wait()
	if declared {
		s.startPool(ctx, &workers, pool.Name)
		return
	}
	select {
	case <-s.trainingWorkers.needed:
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
