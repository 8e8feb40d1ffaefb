package inprocess

import (
	"context"
	"time"

	"rollout/functions/reclaim"
)

// freeAgainInterval is how often runs that were freed are looked at again.
const freeAgainInterval = time.Hour

// runFree frees the work files of ended runs that an earlier process left, and looks every hour
// at those that were freed since. Scans free those of runs that end meanwhile.
func (s *System) runFree(ctx context.Context) {
	if err := s.freer.FreeAll(ctx); err != nil {
		s.warn(ctx, "work files of ended runs not freed: they are kept until the next start", err)
	}
	tick := time.NewTicker(freeAgainInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.freer.FreeAgain(ctx); err != nil {
				s.warn(ctx, "work files of ended runs not freed: they are kept until the next start", err)
			}
		}
	}
}

// freeLastFor bounds how long the end of a process waits for work files to be freed. The next
// process frees the rest.
const freeLastFor = 10 * time.Second

// freeLast frees the work files of runs that ended just before this process.
func (s *System) freeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeLastFor)
	defer cancel()
	if err := s.reclaim.FreeEnded(ctx); err != nil {
		s.warn(ctx, "work files of ended runs not freed: the next start frees them", err)
	}
}

// expireInterval is how often old runs are looked for.
const expireInterval = time.Minute

// runExpire deletes the documents of runs that ended long ago.
func (s *System) runExpire(ctx context.Context) {
	e := reclaim.NewExpirer(s.Ports, reclaim.ExpireOptions{Keep: s.cfg.Deployment.Storage.KeepDocuments.Std(),
		WorkFiles: s.cfg.Segments == nil})
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	for {
		if err := e.ExpireAll(ctx); err != nil {
			s.warn(ctx, "documents of old runs are not deleted: trying again", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
