package inprocess

import (
	"context"
	"time"

	"rollout/functions/reclaim"
)

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
