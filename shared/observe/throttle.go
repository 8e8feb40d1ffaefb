package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/fault"
)

// Gaps between two lines of one complaint: doubling while it goes on.
const (
	firstGap = 10 * time.Second
	lastGap  = 10 * time.Minute
	// maxComplaints bounds how many are remembered; beyond it some are told
	// again.
	maxComplaints = 1024
)

// Throttle returns a handler that tells a lasting trouble now and then instead of
// each time it is met. A trouble is a warning or error with an error of the
// world around: a disk that is full, read-only or damaged, a store or server
// that is away. It is told at once; the same message about the same run, with
// an error of the same kind, is then held back for a while, and the next line
// says in `held` how many were. Everything else passes.
func Throttle(h slog.Handler) slog.Handler {
	return &throttle{Handler: h, complaints: &complaints{last: map[complaint]*told{}}}
}

type throttle struct {
	slog.Handler
	complaints *complaints // shared by all loggers made of this one
	run        string      // what With said
}

// complaint is what makes two lines the same one.
type complaint struct {
	message, run string
	kind         fault.Kind
}

// told is when a complaint was told last.
type told struct {
	at   time.Time
	gap  time.Duration // until it may be told again
	held int           // since then
}

// complaints are those told lately.
type complaints struct {
	mu   sync.Mutex
	last map[complaint]*told
}

func (c *throttle) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return c.Handler.Handle(ctx, r)
	}
	key := complaint{message: r.Message, run: c.run}
	lasting := false
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == KeyRun {
			key.run = a.Value.String()
		}
		if err, ok := a.Value.Any().(error); ok && !lasting {
			key.kind = fault.KindOf(err)
			lasting = isPersistent(key.kind)
		}
		return true
	})
	if !lasting {
		return c.Handler.Handle(ctx, r)
	}
	held, tell := c.complaints.tell(key, r.Time)
	if !tell {
		return nil
	}
	if held > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("held", held))
	}
	return c.Handler.Handle(ctx, r)
}

// isPersistent reports whether a kind is of troubles that last until somebody
// mends something.
func isPersistent(k fault.Kind) bool {
	switch k {
	case fault.Exhausted, fault.Denied, fault.Unavailable, fault.Throttled, fault.Corrupt:
		return true
	}
	return false
}

// tell reports whether a complaint may be told now, and how many were held
// back since it was told last.
func (c *complaints) tell(key complaint, now time.Time) (held int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.last[key]
	since := time.Duration(0)
	if t != nil {
		since = now.Sub(t.at)
	}
	switch {
	case t == nil || since < 0 || since > 2*t.gap: // new, or new again
		if len(c.last) >= maxComplaints {
			clear(c.last)
		}
		c.last[key] = &told{at: now, gap: firstGap}
		if t != nil {
			held = t.held
		}
		return held, true
	case since < t.gap:
		t.held++
		return 0, false
	}
	held = t.held
	*t = told{at: now, gap: min(2*t.gap, lastGap)}
	return held, true
}

func (c *throttle) WithAttrs(attrs []slog.Attr) slog.Handler {
	d := *c
	d.Handler = c.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == KeyRun {
			d.run = a.Value.String()
		}
	}
	return &d
}

func (c *throttle) WithGroup(name string) slog.Handler {
	d := *c
	d.Handler = c.Handler.WithGroup(name)
	return &d
}
