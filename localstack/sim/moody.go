package sim

import (
	"context"
	"strings"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/shared/fault"
)

// refuse marks prompts that the engine refuses as the request's own fault.
const refuse = "refuse me"

// moody is an engine whose answers are those of the mock, and come when they
// come. Its moods charge nobody: it is overloaded, or away for a while.
type moody struct {
	*process
}

// Answer implements engine.Engine.
func (m *moody) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	w := m.world
	label := "engine/" + string(r.Body)
	if w.venom == outside {
		v, err := w.server.enter(ctx, r.Alone)
		if err != nil {
			return engine.Answer{}, err
		}
		a, err := m.answer(ctx, r, progress, label)
		if deadly(r) && ctx.Err() == nil {
			v.die(w)
		}
		if died := v.leave(); died != nil {
			return engine.Answer{}, died
		}
		return a, err
	}
	if w.venom == inside && deadly(r) {
		pause(ctx, w.dice.between(label, time.Millisecond, 900*time.Millisecond))
		w.tracef("%s dies of a prompt", m.name)
		m.die()
	}
	return m.answer(ctx, r, progress, label)
}

func (m *moody) answer(ctx context.Context, r engine.Request, progress func(), label string) (engine.Answer, error) {
	w := m.world
	pause(ctx, w.dice.between(label, time.Millisecond, 900*time.Millisecond))
	if err := m.gate(ctx); err != nil {
		return engine.Answer{}, err
	}
	progress()
	if w.unruly() && w.dice.chance("mood/"+label, 0.02) {
		return engine.Answer{}, fault.New(fault.Throttled, "injected: overloaded")
	}
	if w.unruly() && w.dice.chance("away/"+label, 0.01) {
		return engine.Answer{}, fault.New(fault.Unavailable, "injected: the connection broke")
	}
	return answer(ctx, r)
}

// answer is the engine's answer, the same for the same request anywhere.
func answer(ctx context.Context, r engine.Request) (engine.Answer, error) {
	if strings.Contains(string(r.Body), refuse) {
		return engine.Answer{}, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: fault.New(fault.Invalid, "the prompt is refused")}
	}
	return mock.New(mock.Config{}).Answer(ctx, r, func() {})
}

// Ready implements engine.Engine.
func (m *moody) Ready(ctx context.Context) (string, error) {
	s := &m.world.server
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return "", fault.New(fault.Unavailable, "the server is down")
	}
	return "mock", m.gate(ctx)
}

// Close implements engine.Engine.
func (m *moody) Close() error { return nil }
