package sim

import (
	"context"
	"strings"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/engine/mock"
	"rollout/shared/fault"
)

// refusedPrompt marks prompts that the engine refuses, with refusedWords.
const (
	refusedPrompt = "refuse me"
	refusedWords  = "the prompt is refused"
)

// maxMoods bounds how often a server refuses one request for no reason. Three refusals of
// one item in a row, where one request in fifty is refused, prove by design that the item
// is at fault (10⁻⁵, see package blame): over all seeds that happens by chance, too.
const maxMoods = 1

// fakeEngine answers as the mock engine does, after a drawn time. It is sometimes
// overloaded or unavailable, for which no item is charged. It crashes itself or
// its worker at poisonous prompts.
type fakeEngine struct {
	*process
	servers *balancer.Balancer // answers in its place; nil in a world without httpServers
}

// Answer implements engine.Engine.
func (m *fakeEngine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	m.world.limit.record(m.name)
	m.world.checkSilent(r)
	if ofNeighbour(r) {
		return m.ask(ctx, r, progress)
	}
	m.world.spending.begin(m.process, r)
	began := time.Now()
	a, err := m.ask(ctx, r, progress)
	m.world.spending.lasted(time.Since(began))
	if err == nil {
		m.world.spending.answer(m.name, r, a.Usage)
	}
	return a, err
}

func (m *fakeEngine) ask(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if m.servers != nil {
		return m.servers.Answer(ctx, r, progress)
	}
	w := m.world
	label := "engine/" + string(r.Body)
	if w.poison == killsServer {
		v, err := w.server.enter(ctx, r.Exclusive)
		if err != nil {
			return engine.Answer{}, err
		}
		a, err := m.answer(ctx, r, progress, label)
		if isPoison(r) && ctx.Err() == nil {
			v.crash(w)
		}
		if died := v.leave(); died != nil {
			return engine.Answer{}, died
		}
		return a, err
	}
	if w.poison == killsWorker && isPoison(r) {
		pause(ctx, w.rand.duration(label, time.Millisecond, 900*time.Millisecond))
		w.tracef("%s crashes at a prompt", m.name)
		m.crash()
	}
	return m.answer(ctx, r, progress, label)
}

func (m *fakeEngine) answer(
	ctx context.Context, r engine.Request, progress func(), label string,
) (engine.Answer, error) {
	w := m.world
	pause(ctx, w.rand.duration(label, time.Millisecond, 900*time.Millisecond))
	if err := m.checkAlive(ctx); err != nil {
		return engine.Answer{}, err
	}
	progress()
	if w.faultsOn() && w.rand.chanceAtMost("mood/"+label, 0.02, maxMoods) {
		return engine.Answer{}, fault.New(fault.Throttled, "injected: overloaded")
	}
	if w.faultsOn() && w.rand.chanceAtMost("away/"+label, 0.01, 1) {
		return engine.Answer{}, fault.New(fault.Unavailable, "injected: the connection broke")
	}
	return answer(ctx, r)
}

// answer is the engine's answer, which depends only on the request.
func answer(ctx context.Context, r engine.Request) (engine.Answer, error) {
	if strings.Contains(string(r.Body), refusedPrompt) {
		return engine.Answer{}, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
			Err: fault.New(fault.Invalid, refusedWords)}
	}
	if about, ok := judgedAnswer(r); ok {
		return judgeAnswer(about)
	}
	if text, ok := clerkAnswer(r.Body); ok {
		words := int64(strings.Count(text, " ")) + 1
		return engine.Answer{Text: text, FinishReason: "stop", Usage: engine.Usage{PromptTokens: words,
			CompletionTokens: words}}, nil
	}
	return mock.New(mock.Config{}).Answer(ctx, r, func() {})
}

// Ready implements engine.Engine.
func (m *fakeEngine) Ready(ctx context.Context) (string, error) {
	if m.servers != nil {
		return m.servers.Ready(ctx)
	}
	s := &m.world.server
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return "", fault.New(fault.Unavailable, "the server is down")
	}
	return "mock", m.checkAlive(ctx)
}

// Close implements engine.Engine.
func (m *fakeEngine) Close() error {
	if m.servers != nil {
		return m.servers.Close()
	}
	return nil
}
