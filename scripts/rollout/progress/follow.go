package progress

import (
	"context"
	"fmt"
	"strings"
	"time"

	"rollout/functions/api"
	"rollout/shared/clock"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/fault"
)

// Source tells about runs. api.Service is one.
type Source interface {
	Show(ctx context.Context, id identity.RunID) (api.Status, error)
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
	noted string    // the last note, without digits
}

// look asks once. A store that can't be reached is asked again.
func (f *follower) look(ctx context.Context) (ended bool, err error) {
	s, err := f.Show(ctx, f.run)
	now := f.clock.Now()
	switch {
	case fault.Is(err, fault.NotFound):
		f.complain(now)
		return false, nil
	case fault.Retriable(err):
		f.note(err.Error())
		return false, nil
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	got, _ := Parts(s)
	if before, _ := Parts(f.last); s.Phase != f.last.Phase || got != before || s.Shards.Running != f.last.Shards.Running {
		f.since = now
	}
	f.last = s
	f.view.Update(s, f.meter.Add(s, now))
	if s.Phase.Ended() {
		return true, nil
	}
	f.complain(now)
	return false, nil
}

// complain says why nothing happens, if nothing does for a while. A pause is
// told at once: somebody wanted it, or must do something.
func (f *follower) complain(now time.Time) {
	worst := ""
	if len(f.last.HoldUps) > 0 {
		worst = HoldUpWords(f.last.HoldUps[0])
	}
	switch {
	case f.last.Phase == run.Paused || f.last.Phase == run.Interrupted:
		f.note(worst)
	case now.Sub(f.since) < patience:
	case f.last.Run == "":
		f.note("nobody has taken the run up yet: is `rollout up` running in this folder?")
	case worst != "":
		f.note(worst)
	}
}

// note shows a text unless it was the last one shown, but for its numbers: how
// long an engine has been away is another number every second.
func (f *follower) note(text string) {
	if said := withoutDigits(text); said != f.noted {
		f.noted = said
		f.view.Note(text)
	}
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s)
}
