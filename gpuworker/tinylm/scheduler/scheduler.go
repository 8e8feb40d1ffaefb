// Package scheduler runs many sequences through one model at once: continuous
// batching. A sequence joins the batch as soon as there is room and leaves it
// at its end; the others never wait for it.
//
// One goroutine owns the model. What a sequence gets does not depend on the
// others, because the model's steps do not: see Model. How many run at once and
// how many wait is bounded. The package knows no text, no sampling and no
// requests.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
)

// Config sets a Scheduler up.
type Config struct {
	Slots   int // sequences at once; 32 if 0
	Queue   int // that may wait; 1,024 if 0
	Prefill int // tokens of prompts that one step reads at most; 128 if 0
}

// Scheduler runs jobs. Any number of goroutines may use it.
type Scheduler struct {
	cfg   Config
	model Model
	queue chan *activeJob
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once

	idle    []Sequence // for the next ones
	running []*activeJob
	slots   []Slot
	logits  [][]float32

	counters
}

// counters are written by the scheduler's goroutine, but for waiting.
type counters struct {
	active, waiting, cached  atomic.Int64
	promptTokens, madeTokens atomic.Int64
	steps, batched           atomic.Int64
}

// Stats is what the scheduler does, and has done since its start.
type Stats struct {
	Running, Waiting        int64
	Cache                   float64 // share of all slots' tokens in use, 0 to 1
	PromptTokens, NewTokens int64
	Steps, Batched          int64 // steps of the model, and slots in them all together
}

// New starts a scheduler over the model, which nobody else may use from now on.
func New(m Model, cfg Config) *Scheduler {
	for _, d := range []struct {
		v     *int
		value int
	}{{&cfg.Slots, 32}, {&cfg.Queue, 1024}, {&cfg.Prefill, 128}} {
		if *d.v <= 0 {
			*d.v = d.value
		}
	}
	s := &Scheduler{cfg: cfg, model: m, queue: make(chan *activeJob, cfg.Queue), quit: make(chan struct{}), done: make(chan struct{})}
	go s.loop()
	return s
}

// Slots is how many sequences run at once.
func (s *Scheduler) Slots() int { return s.cfg.Slots }

// Run runs the job to its end. Faults: Throttled if too many wait, Unavailable
// once the scheduler is closed, Canceled with ctx, Invalid for a prompt that is
// empty or does not fit, else what Take, Read or the model returned. After
// Canceled, Take may still be running once.
func (s *Scheduler) Run(ctx context.Context, j *Job) (Times, error) {
	if n := len(j.Prompt); n == 0 || n >= s.model.Context() {
		return Times{}, fault.New(fault.Invalid, "a prompt of %d tokens does not fit a context of %d", n, s.model.Context())
	}
	for _, id := range j.Prompt {
		if id < 0 || int(id) >= s.model.Vocab() {
			return Times{}, fault.New(fault.Invalid, "the model has no token %d", id)
		}
	}
	if ctx.Err() != nil {
		return Times{}, canceled(ctx)
	}
	t := &activeJob{Job: j, ctx: ctx, times: Times{Queued: time.Now()}, over: make(chan error, 1)}
	s.waiting.Add(1)
	select {
	case <-s.quit:
		s.waiting.Add(-1)
		return t.times, s.closed()
	default:
	}
	select {
	case s.queue <- t:
	default:
		s.waiting.Add(-1)
		return t.times, &fault.Error{Kind: fault.Throttled, RetryAfter: time.Second,
			Err: fmt.Errorf("%d requests run and %d wait: there is no room for more", s.cfg.Slots, s.cfg.Queue), Remedy: "ask fewer at once"}
	}
	select {
	case err := <-t.over:
		return t.times, err
	case <-ctx.Done():
		return Times{Queued: t.times.Queued}, canceled(ctx)
	case <-s.done:
		select {
		case err := <-t.over: // it ended first
			return t.times, err
		default:
			return Times{Queued: t.times.Queued}, s.closed()
		}
	}
}

func canceled(ctx context.Context) error {
	return fault.WithKind(fault.Canceled, context.Cause(ctx), "run")
}

func (s *Scheduler) closed() error {
	return fault.WithKind(fault.Unavailable, errors.New("the engine is closed"), "run")
}

// Close ends all jobs with Unavailable. It may be called again.
func (s *Scheduler) Close() {
	s.once.Do(func() { close(s.quit) })
	<-s.done
}

// Closed reports whether Close was called.
func (s *Scheduler) Closed() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

// Stats returns what the scheduler does.
func (s *Scheduler) Stats() Stats {
	return Stats{Running: s.active.Load(), Waiting: s.waiting.Load(),
		Cache:        float64(s.cached.Load()) / float64(int64(s.cfg.Slots)*int64(s.model.Context())),
		PromptTokens: s.promptTokens.Load(), NewTokens: s.madeTokens.Load(), Steps: s.steps.Load(), Batched: s.batched.Load()}
}
