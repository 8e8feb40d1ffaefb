package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollout/events"
	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// maxReason bounds the reason of a user, in bytes.
const maxReason = 512

// Pause requests that the run starts no new requests. reason is a text for
// people. Pausing a paused run changes nothing. A run that has ended, or is
// ending, is Conflict.
func (s *Service) Pause(ctx context.Context, id identity.RunID, reason string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	return s.setDesired(ctx, id, "paused", func(c record.Control, st run.State) (record.Control, bool, error) {
		if err := checkNotEnding(c, st); err != nil {
			return c, false, err
		}
		paused := c.Desired == record.DesiredPause
		c.Desired, c.Reason = record.DesiredPause, reason
		return c, !paused, nil
	})
}

// Resume requests that a paused or interrupted run goes on. Resuming a run that
// is going on changes nothing. A run that has ended, or is ending, is Conflict.
func (s *Service) Resume(ctx context.Context, id identity.RunID, reason string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	return s.setDesired(ctx, id, "resumed", func(c record.Control, st run.State) (record.Control, bool, error) {
		if err := checkNotEnding(c, st); err != nil {
			return c, false, err
		}
		// Coordinate may have paused the run by itself, and not have written that to
		// control yet.
		goesOn := c.Desired != record.DesiredPause && !isPaused(st.Phase)
		c.Desired, c.Reason = record.DesiredRun, reason
		return c, !goesOn, nil
	})
}

// Stop requests that the run ends now. Finished items are kept and written; the
// other items fail as canceled. Stopping a run that is ending or was stopped
// changes nothing. A run that ended otherwise is Conflict. reason becomes the run's
// message.
func (s *Service) Stop(ctx context.Context, id identity.RunID, reason string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	s.ports.Log.InfoContext(ctx, "run_stop", "run", id, "reason", reason)
	return s.setDesired(ctx, id, "stopped", func(c record.Control, st run.State) (record.Control, bool, error) {
		if c.Desired == record.DesiredEnd || st.Reason != "" {
			return c, false, nil
		}
		c.Desired, c.Reason, c.Text = record.DesiredEnd, string(run.ReasonStopped), reason
		return c, true, nil
	})
}

// setDesired changes the desired state of a run that has not ended. It tells
// coordinate even if nothing changed, because an earlier message may have been
// lost. what is the past participle of the action, for errors.
func (s *Service) setDesired(ctx context.Context, id identity.RunID, what string,
	change func(record.Control, run.State) (record.Control, bool, error)) error {
	st, err := s.loadSteerable(ctx, id, what)
	if err != nil || st.Phase.Ended() {
		return err
	}
	update := func(cur record.Control, _ bool) (record.Control, bool, error) {
		next, write, err := change(cur, st)
		if err != nil || !write {
			return cur, false, err
		}
		next.Schema, next.Sequence, next.At = record.Schema, cur.Sequence+1, s.ports.Clock.Now().UTC()
		return next, true, nil
	}
	c, err := host.Update(ctx, s.ports.Docs, record.ControlKey(id), update)
	if err != nil {
		return fault.Wrap(err, "run %s can't be %s", id, what)
	}
	return s.ports.Send(ctx, host.CoordinateQueue, events.ControlChanged{Run: string(id), Sequence: c.Sequence})
}

// loadSteerable returns the state of a run that has not ended, or of a stopped
// run that is to be stopped again. Any other run is Conflict.
func (s *Service) loadSteerable(ctx context.Context, id identity.RunID, what string) (run.State, error) {
	m, err := host.LoadManifest(ctx, s.ports.Docs, id)
	if err != nil {
		return run.State{}, err
	}
	st := run.New(id)
	if _, _, err := host.Load(ctx, s.ports.Docs, record.CoordinatorKey(id), &st); err != nil {
		return st, err
	}
	if m.Refused != "" {
		return st, errEnded(m, run.Failed, what)
	}
	if st.Phase.Ended() && !(what == "stopped" && st.Phase == run.Stopped) {
		return st, errEnded(m, st.Phase, what)
	}
	return st, nil
}

// errEnded is the Conflict of a run that has ended. Who wanted to resume it is told how what
// it left unanswered is asked.
func errEnded(m record.Manifest, p run.Phase, what string) error {
	e := &fault.Error{Kind: fault.Conflict,
		Err: fmt.Errorf("run %s has ended (%s): it can't be %s", m.Run, status.FormatPhase(p), what)}
	switch {
	case what != "resumed" || p == run.Completed:
	case m.Refused != "", cmp.Or(m.Kind, config.KindBatch) != config.KindBatch, len(m.Config.Judges()) > 0:
		e.Remedy = "submit its input again for a new run"
	default:
		e.Remedy = fmt.Sprintf("`rollout retry %s --unanswered` asks what is left in a new run", m.Run)
	}
	return e
}

// checkNotEnding returns Conflict for a run that is ending.
func checkNotEnding(c record.Control, st run.State) error {
	if c.Desired == record.DesiredEnd || st.Phase == run.Ending || st.Phase == run.Finalizing {
		return &fault.Error{Kind: fault.Conflict, Err: errors.New("it is ending already"),
			Remedy: "wait for its end: `rollout status` shows it"}
	}
	return nil
}

// isPaused reports whether a resume ends the phase.
func isPaused(p run.Phase) bool {
	return p == run.Pausing || p == run.Paused || p == run.Interrupted
}

// checkReason returns Invalid for a reason that is too long or cannot be shown as
// it is.
func checkReason(reason string) error {
	switch {
	case len(reason) > maxReason:
		return &fault.Error{Kind: fault.Invalid, Remedy: "shorten it",
			Err: fmt.Errorf("the reason has %d bytes, at most %d are allowed", len(reason), maxReason)}
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("the reason has control characters"),
			Remedy: "remove them"}
	}
	return nil
}
