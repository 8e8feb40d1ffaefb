// Package scheduler runs many sequences through one model at once, with
// continuous batching: a sequence joins the batch as soon as a slot is free, and
// leaves it at its own end. Callers pass a Job to Scheduler.Run, which returns
// when the sequence has ended.
//
// One goroutine owns the model. The tokens of a sequence do not depend on the
// other sequences, because the model's logits do not (see Model). The numbers of
// running and waiting jobs are bounded. The package knows nothing of text,
// sampling or requests.
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

// Config is a Scheduler's configuration.
type Config struct {
	Slots   int // maximum number of running sequences; default: 32
	Queue   int // maximum number of waiting jobs; default: 1,024
	Prefill int // maximum number of prompt tokens per step; default: 128
}

// Scheduler runs jobs. It is safe for concurrent use.
type Scheduler struct {
	cfg   Config
	model Model
	queue chan *activeJob
	quit  chan struct{}
	done  chan struct{}
	once  sync.Once

	idle    []Sequence // empty sequences, for later jobs
	running []*activeJob
	slots   []Slot
	logits  [][]float32

	counters
}

// counters are written by the scheduler's goroutine, except waiting, which Run
// also writes.
type counters struct {
	active, waiting, cached atomic.Int64
	promptTokens, newTokens atomic.Int64
	steps, batched          atomic.Int64
}

// Stats are the current numbers of jobs, and totals since the start.
type Stats struct {
	Running, Waiting        int64
	Cache                   float64 // share of the cache's token positions in use, 0 to 1
	PromptTokens, NewTokens int64   // totals
	Steps, Batched          int64   // totals of steps, and of slots in all steps
}

// New starts a scheduler that runs the model. The caller must not use the model
// until Close has returned.
func New(m Model, cfg Config) *Scheduler {
	for _, d := range []struct {
		v     *int
		value int
	}{{&cfg.Slots, 32}, {&cfg.Queue, 1024}, {&cfg.Prefill, 128}} {
		if *d.v <= 0 {
			*d.v = d.value
		}
	}
	s := &Scheduler{
		cfg: cfg, model: m, queue: make(chan *activeJob, cfg.Queue), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go s.loop()
	return s
}

// Slots returns the maximum number of running sequences.
func (s *Scheduler) Slots() int { return s.cfg.Slots }

// Run runs the job and returns after its end. Faults: Throttled if too many jobs
// wait; Unavailable if the scheduler is closed; Canceled if ctx is canceled;
// Invalid for a prompt that is empty or does not fit into the context. Errors of
// NextToken, OnPromptLogits and the model are returned too. After a Canceled
// fault, one more call of NextToken may still be in progress.
func (s *Scheduler) Run(ctx context.Context, j *Job) (Times, error) {
	if n := len(j.Prompt); n == 0 || n >= s.model.Context() {
		return Times{}, fault.New(fault.Invalid, "a prompt of %d tokens does not fit a context of %d",
			n, s.model.Context())
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
			Err:    fmt.Errorf("the engine is full: %d requests run and %d wait", s.cfg.Slots, s.cfg.Queue),
			Remedy: "send fewer requests at once"}
	}
	select {
	case err := <-t.over:
		return t.times, err
	case <-ctx.Done():
		return Times{Queued: t.times.Queued}, canceled(ctx)
	case <-s.done:
		select {
		case err := <-t.over: // the job ended before the scheduler
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

// Close stops the scheduler and ends all jobs with an Unavailable fault. Further
// calls do nothing.
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

// Stats returns the current statistics.
func (s *Scheduler) Stats() Stats {
	return Stats{Running: s.active.Load(), Waiting: s.waiting.Load(),
		Cache:        float64(s.cached.Load()) / float64(int64(s.cfg.Slots)*int64(s.model.Context())),
		PromptTokens: s.promptTokens.Load(), NewTokens: s.newTokens.Load(),
		Steps: s.steps.Load(), Batched: s.batched.Load()}
}
