package inprocess

import (
	"context"
	"time"
)

// How long runNotify waits while nothing is recorded. Another process may record events, and a
// store that failed is asked again.
const (
	notifyInterval = time.Minute
	notifyLastFor  = 5 * time.Second // at the end of the process
)

// runNotify delivers events for people as soon as they are recorded, and again when they are
// due, until ctx ends.
func (s *System) runNotify(ctx context.Context) {
	for ctx.Err() == nil {
		next, err := s.cfg.Notifier.Deliver(ctx)
		if err != nil {
			s.warn(ctx, "events for people not delivered: they are tried again", err)
		}
		wait := notifyInterval
		if !next.IsZero() {
			wait = min(max(next.Sub(s.Clock.Now()), time.Millisecond), notifyInterval)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.cfg.Notifier.Added():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// notifyLast delivers what was recorded just before the end of the process. The next process
// delivers the rest.
func (s *System) notifyLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyLastFor)
	defer cancel()
	if _, err := s.cfg.Notifier.Deliver(ctx); err != nil {
		s.warn(ctx, "events for people not delivered: the next start delivers them", err)
	}
}
