package progress

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
)

// Source returns the status of runs. api.Service implements it.
type Source interface {
	Show(ctx context.Context, id identity.RunID) (status.Status, error)
}

// View displays a run.
type View interface {
	// Update displays the current status.
	Update(s status.Status, p Pace)
	// Note displays a line of text once.
	Note(text string)
	// Close ends the view. What it displayed last stays visible.
	Close()
}

const (
	defaultInterval = 250 * time.Millisecond
	defaultPatience = 10 * time.Second
)

// Follower displays a run in a view until it ends.
type Follower struct {
	Source Source
	View   View
	Clock  clock.Clock
	// UntilPaused ends the display when the run is paused, too.
	UntilPaused bool
	Every       time.Duration // between two requests for the status; 0 is 250 ms
	// OnNotStarted is called once if the run still does not exist after Patience (0 is 10 s). It may act on that, and
	// returns a note to display. Nil displays a note that asks whether `rollout up` is running.
	OnNotStarted func(ctx context.Context) string
	Patience     time.Duration
}

// Follow displays the run until it has ended, closes the view and returns the last status. It waits for a run that does
// not exist yet, because an upload becomes a run some time later. When ctx ends it returns Canceled; the run continues.
func (o Follower) Follow(ctx context.Context, id identity.RunID) (status.Status, error) {
	f := follower{Follower: o, run: id, since: o.Clock.Now()}
	defer o.View.Close()
	tick := time.NewTicker(cmp.Or(o.Every, defaultInterval))
	defer tick.Stop()
	for {
		ended, err := f.poll(ctx)
		if err != nil || ended {
			return f.last, err
		}
		select {
		case <-ctx.Done():
			return f.last, &fault.Error{Kind: fault.Canceled,
				Err:    fmt.Errorf("stopped following run %s, which continues", id),
				Remedy: fmt.Sprintf("`rollout status %s --watch` shows it, `rollout stop %s` ends it", id, id)}
		case <-tick.C:
		}
	}
}

// follower is one call of Follow.
type follower struct {
	Follower
	run        identity.RunID
	rate       RateEstimator
	last       status.Status
	since      time.Time // time of the last progress
	lastNote   string    // without digits
	notStarted bool      // OnNotStarted was called
}

// poll requests and displays the status once. It notes a retriable error; the next poll tries again.
func (f *follower) poll(ctx context.Context) (ended bool, err error) {
	s, err := f.Source.Show(ctx, f.run)
	now := f.Clock.Now()
	switch {
	case fault.Is(err, fault.NotFound):
		f.explainDelay(ctx, now)
		return false, nil
	case fault.Retriable(err):
		f.note(err.Error())
		return false, nil
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	done, _ := DoneAndTotal(s)
	before, _ := DoneAndTotal(f.last)
	if s.Phase != f.last.Phase || done != before || s.Shards.Running != f.last.Shards.Running {
		f.since = now
	}
	f.last = s
	f.View.Update(s, f.rate.Add(s, now))
	if s.Phase.Ended() {
		return true, nil
	}
	f.explainDelay(ctx, now)
	return f.UntilPaused && (s.Phase == run.Paused || s.Phase == run.Interrupted), nil
}

// explainDelay notes what blocks the run once it has made no progress for defaultPatience. It notes the reason of a
// pause at once, because the user caused it or must act.
func (f *follower) explainDelay(ctx context.Context, now time.Time) {
	blocker := ""
	if len(f.last.Blockers) > 0 {
		blocker = FormatBlocker(f.last.Blockers[0])
	}
	switch {
	case f.last.Phase == run.Paused || f.last.Phase == run.Interrupted:
		f.note(blocker)
	case f.last.Run == "":
		f.explainNotStarted(ctx, now)
	case now.Sub(f.since) < defaultPatience:
	case blocker != "":
		f.note(blocker)
	}
}

func (f *follower) explainNotStarted(ctx context.Context, now time.Time) {
	switch {
	case f.notStarted || now.Sub(f.since) < cmp.Or(f.Patience, defaultPatience):
	case f.OnNotStarted == nil:
		f.note("the run has not started yet: is `rollout up` running in this folder?")
	default:
		f.notStarted = true
		f.note(f.OnNotStarted(ctx))
	}
}

// note displays a text unless it differs from the last note only in its numbers: a text that counts seconds would
// otherwise be displayed every second.
func (f *follower) note(text string) {
	if t := withoutDigits(text); t != f.lastNote {
		f.lastNote = t
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
