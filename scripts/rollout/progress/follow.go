package progress

import (
	"context"
	"fmt"
	"time"

	"rollout/functions/api"
	"rollout/shared/clock"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/fault"
)

// Source tells about runs and workers. api.Service is one.
type Source interface {
	Show(ctx context.Context, id identity.RunID) (api.Status, error)
	Workers(ctx context.Context) ([]api.WorkerStatus, error)
}

// View shows a run to somebody.
type View interface {
	// Update shows where the run is now.
	Update(s api.Status, p Pace)
	// Note shows a line once.
	Note(text string)
	// Close ends the view; what it shows last stays.
	Close()
}

const (
	poll     = 250 * time.Millisecond
	patience = 10 * time.Second // without progress, before saying what may be wrong
)

// Follow shows the run in the view until it has ended, and returns its last
// status. A run that does not exist yet is waited for: `up` takes uploads up
// in its own time. When ctx ends it returns Canceled; the run goes on.
func Follow(ctx context.Context, src Source, id identity.RunID, v View, c clock.Clock) (api.Status, error) {
	f := follower{Source: src, view: v, clock: c, run: id, since: c.Now()}
	defer v.Close()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		ended, err := f.look(ctx)
		if err != nil || ended {
			return f.last, err
		}
		select {
		case <-ctx.Done():
			return f.last, &fault.Error{Kind: fault.Canceled, Err: fmt.Errorf("stopped following run %s, which goes on", id),
				Remedy: "`rollout status` shows it, `rollout stop` ends it"}
		case <-tick.C:
		}
	}
}

type follower struct {
	Source
	view  View
	clock clock.Clock
	run   identity.RunID
	meter Meter
	last  api.Status
	since time.Time // of the last progress
	noted string    // the last note
}

// look asks once. A store that can't be reached is asked again.
func (f *follower) look(ctx context.Context) (ended bool, err error) {
	s, err := f.Show(ctx, f.run)
	now := f.clock.Now()
	switch {
	case fault.Is(err, fault.NotFound):
		return false, f.complain(ctx, now)
	case fault.Retriable(err):
		f.note(err.Error())
		return false, nil
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	if s.Phase != f.last.Phase || s.Items.Settled() != f.last.Items.Settled() || s.Shards.Running != f.last.Shards.Running {
		f.since = now
	}
	f.last = s
	f.view.Update(s, f.meter.Add(s, now))
	if s.Phase.Ended() {
		return true, nil
	}
	return false, f.complain(ctx, now)
}

// complain says why nothing happens, if nothing does for a while.
func (f *follower) complain(ctx context.Context, now time.Time) error {
	switch {
	case f.last.Phase == run.Paused || f.last.Phase == run.Interrupted:
		why := ""
		if f.last.Message != "" {
			why = ": " + f.last.Message
		}
		f.note(fmt.Sprintf("%s%s (`rollout resume %s` lets it go on)", PhaseWords(f.last.Phase), why, f.run))
		return nil
	case now.Sub(f.since) < patience:
		return nil
	case f.last.Run == "":
		f.note("nobody has taken the run up yet: is `rollout up` running in this folder?")
		return nil
	}
	f.since = now // do not count the workers at every look
	workers, err := f.Workers(ctx)
	if err != nil {
		return nil //nolint:nilerr // the next look meets the same fault and judges it
	}
	for _, w := range workers {
		if w.Alive && w.Pool == f.last.Pool {
			return nil
		}
	}
	f.note(fmt.Sprintf("no worker of pool %s is alive: is `rollout up` running in this folder?", f.last.Pool))
	return nil
}

// note shows a text unless it was the last one shown.
func (f *follower) note(text string) {
	if text != f.noted {
		f.noted = text
		f.view.Note(text)
	}
}
