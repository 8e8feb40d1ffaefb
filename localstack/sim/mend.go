package sim

import (
	"context"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// mendAfter is when the user mends what does not pause the run: a server that lets no
// worker begin, or a fault among others that may pass.
const mendAfter = 5 * time.Minute

// mend is the user who looks after a run that pauses because of its servers. The user mends
// the setting at fault, or does not, and resumes the run.
func (s *scenario) mend(ctx context.Context, id identity.RunID) {
	h := s.http
	if h == nil {
		return
	}
	for {
		pause(ctx, s.rand.duration("look", 500*time.Millisecond, 3*time.Second))
		if ctx.Err() != nil {
			return
		}
		st, _ := s.state(context.WithoutCancel(ctx), id)
		var c record.Control
		if _, _, err := host.Load(context.WithoutCancel(ctx), s.docs, record.ControlKey(id), &c); err != nil {
			s.t.Fatal(err)
		}
		if st.Phase.Ended() || c.Desired == record.DesiredEnd {
			return
		}
		if !h.faults.stays && time.Since(s.since()) > mendAfter {
			h.mendAll()
		}
		if c.Desired != record.DesiredPause || c.Refused == "" || !isPaused(st.Phase) {
			continue
		}
		pause(ctx, s.rand.duration("before mending", 10*time.Millisecond, 20*time.Second))
		if h.faults.stays {
			h.awaitEnd(ctx)
		} else {
			h.mendAll()
		}
		h.resume()
		s.audit.setPaused(id, false)
		s.tracef("user: resume %s after %s: %v", id, c.Refused, s.api().Resume(ctx, id, ""))
	}
}

func isPaused(p run.Phase) bool { return p == run.Pausing || p == run.Paused || p == run.Interrupted }

// mendAll ends all faults but those of prompts, and of a bad server beside a good one.
func (h *httpServers) mendAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Since(h.startedAt)
	if _, open := h.faults.setting(); open || h.faults.lastEnd() > now {
		h.tracef("user: mends the servers")
		h.faults.mend(now)
		h.mended = time.Now()
	}
}

// awaitEnd waits until all has passed that passes.
func (h *httpServers) awaitEnd(ctx context.Context) {
	h.mu.Lock()
	last := h.faults.lastEnd()
	h.mu.Unlock()
	pause(ctx, last-time.Since(h.startedAt))
}

// allowed returns the action, or undisturbed in a world where it would hide something: a
// user who resumes a run that waits for a setting must have mended it, and no budget counts
// the tokens of the balancer's own questions.
func (h *httpServers) allowed(a action) action {
	if h != nil && (a == exhaustsBudget || a == pauses && h.faults.pauses()) {
		return undisturbed
	}
	return a
}
