package standalone

import (
	"context"
	"sync"

	"rollout/shared/config"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// trainingWorkers starts the training workers on demand. Every installation can train, even if its config declares no
// training pool, but most never do: workers of an undeclared pool start with the first training run.
type trainingWorkers struct {
	once   sync.Once
	needed chan struct{} // closed when the first run opens that trains
	ended  chan struct{} // closed when the workers have ended, or will never start
}

// noteTraining is called for every run that opens.
func (r *Runtime) noteTraining(m record.Manifest) {
	k, err := kind.Table{}.Of(m.Kind)
	if err == nil && k.Executor == config.ExecutorTrain {
		r.trainingWorkers.once.Do(func() { close(r.trainingWorkers.needed) })
	}
}

// train runs the training workers until the product stops. A declared pool starts at once, as configured. An
// undeclared pool starts when a training run opens, with one worker: a training uses all processors.
func (r *Runtime) train(ctx context.Context) {
	defer close(r.trainingWorkers.ended)
	pool, declared := r.o.Deployment.TrainPool()
	var workers sync.WaitGroup
	defer workers.Wait()
	if declared {
		r.startPool(ctx, &workers, pool.Name)
		return
	}
	select {
	case <-r.trainingWorkers.needed:
	case <-r.stopping:
		return
	case <-ctx.Done():
		return
	}
	if r.o.Workers == 0 {
		workers.Go(func() { r.fail(r.worker(ctx, pool.Name)) })
		return
	}
	workers.Go(func() { r.fail(r.supervise(ctx, pool.Name)) })
}
