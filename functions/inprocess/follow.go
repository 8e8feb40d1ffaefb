package inprocess

import (
	"context"
	"errors"
	"sync"
	"time"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// followers are the runs whose files this process is writing.
type followers struct {
	mu    sync.Mutex
	byRun map[identity.RunID]*follower
	start chan *follower // made by Run; nil before it
}

// follower is a run whose files are written behind its commit frontier.
type follower struct {
	first run.State
	newer chan run.State // has the newest state until the follower takes it
}

// update replaces the newest state. The caller holds the followers' lock.
func (f *follower) update(st run.State) {
	select {
	case <-f.newer: // an older state that was not taken
	default:
	}
	f.newer <- st
}

// pollEvery is how often a follower that gets no update reads the state itself:
// another process may coordinate the run.
const pollEvery = 10 * time.Second

// maxFollowers bounds how many runs' files are open at once. Other runs are
// written at their end.
const maxFollowers = 8

// onSaved ends the wait of an idle reclaim, and updates the run's follower, or starts one.
// Coordinate calls it after every save.
func (s *System) onSaved(st run.State) {
	select {
	case s.saved <- struct{}{}:
	default: // reclaim has not taken the one before
	}
	f := &s.followers
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.byRun[st.Run]; known != nil {
		known.update(st)
		return
	}
	if s.cfg.Segments != nil || st.Phase != run.Running || st.Done.Frontier() == 0 ||
		len(f.byRun) >= maxFollowers || f.start == nil {
		return
	}
	fresh := &follower{first: st, newer: make(chan run.State, 1)}
	select {
	case f.start <- fresh:
		f.byRun[st.Run] = fresh
	default: // busy: the next save starts it
	}
}

// runFollowers starts followers until ctx ends, and waits for them.
func (s *System) runFollowers(ctx context.Context) {
	start := make(chan *follower, maxFollowers)
	s.followers.mu.Lock()
	s.followers.start = start
	s.followers.mu.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-start:
			all.Go(func() { s.follow(ctx, f) })
		}
	}
}

// follow writes a run's files to their end. If that fails, it asks finalize to
// write them again.
func (s *System) follow(ctx context.Context, f *follower) {
	err := s.finalize.Follow(ctx, f.first, func(ctx context.Context) (run.State, error) {
		select {
		case <-ctx.Done():
			return run.State{}, ctx.Err()
		case st := <-f.newer:
			return st, nil
		case <-time.After(pollEvery):
			var st run.State
			_, _, err := host.Load(ctx, s.Docs, record.CoordinatorKey(f.first.Run), &st)
			return st, err
		}
	})
	s.followers.mu.Lock()
	delete(s.followers.byRun, f.first.Run)
	s.followers.mu.Unlock()
	if err == nil || ctx.Err() != nil || errors.Is(err, finalize.ErrAlreadyFinalized) {
		return
	}
	s.warn(ctx, "files not written behind the frontier: they are written at the end", err,
		observe.KeyRun, f.first.Run)
	if err := s.Send(ctx, host.TaskQueue, events.Finalize{Run: string(f.first.Run)}); err != nil {
		s.warn(ctx, "finalize not asked for: reclaim asks later", err, observe.KeyRun, f.first.Run)
	}
}

// finalizeOrWait finalizes a run. If a follower is writing its files, it only
// passes the state to the follower, which may not know yet that the run ends if
// another process coordinates it.
func (s *System) finalizeOrWait(ctx context.Context, p events.Finalize) error {
	id := identity.RunID(p.Run)
	var st run.State
	if _, _, err := host.Load(ctx, s.Docs, record.CoordinatorKey(id), &st); err != nil {
		return err
	}
	f := &s.followers
	f.mu.Lock()
	known := f.byRun[id]
	own := &follower{newer: make(chan run.State, 1)}
	if known != nil {
		known.update(st)
	} else {
		f.byRun[id] = own
	}
	f.mu.Unlock()
	if known != nil {
		return nil
	}
	for phase := st.Phase; ; phase = run.Finalizing {
		err := s.finalize.Finalize(ctx, p)
		if err != nil {
			phase = run.Finalizing // the event comes again
		}
		if !f.release(id, own, phase) {
			return err
		}
	}
}

// release ends what a call of finalizeOrWait does for a run that was in the phase. It returns
// true, and releases nothing, if the run began to end meanwhile: the call that was told so has
// left it to this one.
func (f *followers) release(id identity.RunID, own *follower, phase run.Phase) (again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case st := <-own.newer:
		if phase != run.Finalizing && st.Phase == run.Finalizing {
			return true
		}
	default:
	}
	delete(f.byRun, id)
	return false
}
