package progress

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"rollout/functions/api"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
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

// Follower shows a run in a view.
type Follower struct {
	Source Source
	View   View
	Clock  clock.Clock
	Every  time.Duration // between two looks; 0 is 250 ms
	// OnNotStarted says something of a run that nobody has taken up for Patience
	// (0 is 10 s), and may do something about it; it is called once. Nil asks
	// whether `up` runs.
	OnNotStarted func(ctx context.Context) string
	Patience     time.Duration
}

// Follow shows the run until it has ended, closes the view, and returns the
// run's last status. A run that does not exist yet is waited for: uploads are
// taken up in their own time. When ctx ends it returns Canceled; the run goes
// on.
func (o Follower) Follow(ctx context.Context, id identity.RunID) (api.Status, error) {
	f := follower{Follower: o, run: id, since: o.Clock.Now()}
	defer o.View.Close()
	tick := time.NewTicker(cmp.Or(o.Every, poll))
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
	Follower
	run     identity.RunID
	meter   RateEstimator
	last    api.Status
	since   time.Time // of the last progress
	noted   string    // the last note, without digits
	unheard bool      // Unheard was called
}

// look asks once. A store that can't be reached is asked again.
func (f *follower) look(ctx context.Context) (ended bool, err error) {
	s, err := f.Source.Show(ctx, f.run)
	now := f.Clock.Now()
	switch {
	case fault.Is(err, fault.NotFound):
		f.complain(ctx, now)
		return false, nil
	case fault.Retriable(err):
		f.note(err.Error())
		return false, nil
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	got, _ := DoneAndTotal(s)
	if before, _ := DoneAndTotal(f.last); s.Phase != f.last.Phase || got != before || s.Shards.Running != f.last.Shards.Running {
		f.since = now
	}
	f.last = s
	f.View.Update(s, f.meter.Add(s, now))
	if s.Phase.Ended() {
		return true, nil
	}
	f.complain(ctx, now)
	return false, nil
}

// complain says why nothing happens, if nothing does for a while. A pause is
// told at once: somebody wanted it, or must do something.
func (f *follower) complain(ctx context.Context, now time.Time) {
	worst := ""
	if len(f.last.Blockers) > 0 {
		worst = FormatBlocker(f.last.Blockers[0])
	}
	switch {
	case f.last.Phase == run.Paused || f.last.Phase == run.Interrupted:
		f.note(worst)
	case f.last.Run == "":
		f.notTakenUp(ctx, now)
	case now.Sub(f.since) < patience:
	case worst != "":
		f.note(worst)
	}
}

func (f *follower) notTakenUp(ctx context.Context, now time.Time) {
	switch {
	case f.unheard || now.Sub(f.since) < cmp.Or(f.Patience, patience):
	case f.OnNotStarted == nil:
		f.note("nobody has taken the run up yet: is `rollout up` running in this folder?")
	default:
		f.unheard = true
		f.note(f.OnNotStarted(ctx))
	}
}

// note shows a text unless it was the last one shown, but for its numbers: how
// long an engine has been away is another number every second.
func (f *follower) note(text string) {
	if said := withoutDigits(text); said != f.noted {
		f.noted = said
		f.View.Note(text)
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
