package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/fault"
)

// Limits of throttled lines. The gap between two lines doubles as long as the problem
// lasts.
const (
	firstGap = 10 * time.Second
	lastGap  = 10 * time.Minute
	// maxProblems is the most remembered problems. Beyond it they are forgotten, and
	// their next lines are written at once.
	maxProblems = 1024
)

// Throttle returns a handler that limits the lines about a persistent problem. Such a line
// is a warning or an error with an error of the environment: a full, read-only or damaged
// disk, or an unavailable store or server. The first line is written at once. Lines with
// the same message, the same run and the same kind of error are then dropped for a while;
// the attribute `held` of the next line is their number. All other lines pass.
func Throttle(h slog.Handler) slog.Handler {
	return &throttle{Handler: h, problems: &problems{last: map[problem]*lastLine{}}}
}

type throttle struct {
	slog.Handler
	problems *problems // shared by all loggers derived from this one
	run      string    // the run of the logger's own attributes
}

// problem identifies the lines that are about the same problem.
type problem struct {
	message, run string
	kind         fault.Kind
}

// lastLine describes the last written line about a problem.
type lastLine struct {
	at   time.Time
	gap  time.Duration // until the next line may be written
	held int           // lines that were dropped since
}

// problems are the problems with recent lines.
type problems struct {
	mu   sync.Mutex
	last map[problem]*lastLine
}

func (c *throttle) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return c.Handler.Handle(ctx, r)
	}
	key := problem{message: r.Message, run: c.run}
	persistent := false
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == KeyRun {
			key.run = a.Value.String()
		}
		if err, ok := a.Value.Any().(error); ok && !persistent {
			key.kind = fault.KindOf(err)
			persistent = isPersistent(key.kind)
		}
		return true
	})
	if !persistent {
		return c.Handler.Handle(ctx, r)
	}
	held, ok := c.problems.allow(key, r.Time)
	if !ok {
		return nil
	}
	if held > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("held", held))
	}
	return c.Handler.Handle(ctx, r)
}

// isPersistent reports whether errors of the kind usually last until their cause is
// repaired.
func isPersistent(k fault.Kind) bool {
	switch k {
	case fault.Exhausted, fault.Denied, fault.Unavailable, fault.Throttled, fault.Corrupt:
		return true
	}
	return false
}

// allow reports whether a line about a problem may be written now, and how many lines were
// dropped since the last one.
func (c *problems) allow(key problem, now time.Time) (held int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.last[key]
	since := time.Duration(0)
	if t != nil {
		since = now.Sub(t.at)
	}
	switch {
	case t == nil || since < 0 || since > 2*t.gap: // the problem is new, or has recurred
		if len(c.last) >= maxProblems {
			clear(c.last)
		}
		c.last[key] = &lastLine{at: now, gap: firstGap}
		if t != nil {
			held = t.held
		}
		return held, true
	case since < t.gap:
		t.held++
		return 0, false
	}
	held = t.held
	*t = lastLine{at: now, gap: min(2*t.gap, lastGap)}
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
