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
	"rollout/shared/record"
)

// followers are the runs whose files are being written here, behind their
// commit frontier.
type followers struct {
	mu    sync.Mutex
	byRun map[identity.RunID]*follower
	start chan *follower // made by Run; nil before
}

// follower is one such run.
type follower struct {
	first run.State
	newer chan run.State // the newest state, if it is not taken yet
}

// tell leaves the newest state. Only who holds the followers' lock may call it.
func (f *follower) tell(st run.State) {
	select {
	case <-f.newer: // an older one that nobody took
	default:
	}
	f.newer <- st
}

// lookEvery is how long a follower relies on being told.
const lookEvery = 10 * time.Second

// maxFollowers bounds how many runs' files are open at once. Other runs are
// written at their end.
const maxFollowers = 8

// onSaved hears of every state that coordinate saved here.
func (s *System) onSaved(st run.State) {
	f := &s.followers
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.byRun[st.Run]; known != nil {
		known.tell(st)
		return
	}
	if s.cfg.Segments != nil || st.Phase != run.Running || st.Done.Frontier() == 0 || len(f.byRun) >= maxFollowers || f.start == nil {
		return
	}
	fresh := &follower{first: st, newer: make(chan run.State, 1)}
	select {
	case f.start <- fresh:
		f.byRun[st.Run] = fresh
	default: // busy: the next state starts it
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

// follow writes a run's files to their end. If it can't, they are written anew
// when finalize is asked to.
func (s *System) follow(ctx context.Context, f *follower) {
	err := s.finalize.Follow(ctx, f.first, func(ctx context.Context) (run.State, error) {
		select {
		case <-ctx.Done():
			return run.State{}, ctx.Err()
		case st := <-f.newer:
			return st, nil
		case <-time.After(lookEvery): // others may coordinate and finalize it
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
	s.warn(ctx, "files can't be written behind the frontier; they are written at the end", err, "run", f.first.Run)
	if err := s.Send(ctx, host.TaskQueue, events.Finalize{Run: string(f.first.Run)}); err != nil {
		s.warn(ctx, "finalize not asked for; reclaim will", err, "run", f.first.Run)
	}
}

// finalizeOrWait finalizes a run, unless it is being followed here: then its
// follower does. It may not know yet that the run is at its end, if another
// process coordinates it.
func (s *System) finalizeOrWait(ctx context.Context, p events.Finalize) error {
	id := identity.RunID(p.Run)
	var st run.State
	if _, _, err := host.Load(ctx, s.Docs, record.CoordinatorKey(id), &st); err != nil {
		return err
	}
	f := &s.followers
	f.mu.Lock()
	known := f.byRun[id]
	if known != nil {
		known.tell(st)
	} else {
		f.byRun[id] = &follower{newer: make(chan run.State, 1)}
	}
	f.mu.Unlock()
	if known != nil {
		return nil
	}
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.byRun, id)
	}()
	return s.finalize.Finalize(ctx, p)
}
