package grading

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"rollout/shared/config"
	"rollout/shared/grade"
	"rollout/shared/retry"
	"rollout/shared/secret"
)

// Waits between the tries of a request, and between two warnings about a service.
const (
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = 30 * time.Second
	warnEvery    = time.Minute
)

// maxSingleRetries is how often an answer is sent again by itself, after its batch
// has failed: others wait behind it.
const maxSingleRetries = 2

// service is a client of one scoring service or plugin. It implements grade.Grader.
//
//	submit ─▶ queue ─▶ batch ─▶ ask ─┬─ scores ──────────────────────▶ resolve
//	                      ▲          ├─ may pass: backoff, ask again
//	                      └──────────┴─ final: ask one by one if one answer may be
//	                                    the reason, else resolve with the cause
type service struct {
	name   string
	cfg    config.GraderService
	key    secret.Value
	client *http.Client // nil for a plugin
	// ask makes one request for the scores of the cases.
	ask func(ctx context.Context, cases []grade.Case) ([]grade.Score, *failure)
	log *slog.Logger

	mu     sync.Mutex
	queue  []*waiting
	active int           // goroutines that send requests
	room   chan struct{} // closed when the queue is short again; nil while it is
	warned time.Time
}

func newService(name string, cfg config.GraderService, o Options) *service {
	s := &service{name: name, cfg: cfg, client: newClient(o.HTTPClient, cfg.Concurrency), log: o.Log}
	s.ask = s.askHTTP
	return s
}

// waiting is an answer that waits for its score.
type waiting struct {
	grade.Case
	ctx      context.Context // ends when the wait does
	cancel   context.CancelFunc
	done     func(grade.Score)
	resolved atomic.Bool
	cause    atomic.Pointer[grade.Cause] // of the last failure
}

// resolve ends the wait, unless something else did. It calls done.
func (w *waiting) resolve(s grade.Score) {
	if w.resolved.Swap(true) {
		return
	}
	w.cancel()
	w.done(s)
}

// batch is answers that are sent together.
type batch struct{ waiting []*waiting }

// still returns the answers that still wait.
func (b *batch) still() (out []*waiting) {
	for _, w := range b.waiting {
		if !w.resolved.Load() {
			out = append(out, w)
		}
	}
	return out
}

// Grade implements grade.Grader.
func (s *service) Grade(ctx context.Context, cases []grade.Case) []grade.Score {
	out := make([]grade.Score, len(cases))
	var all sync.WaitGroup
	for i, c := range cases {
		all.Add(1)
		s.submit(ctx, c, func(score grade.Score) {
			out[i] = score
			all.Done()
		})
	}
	all.Wait()
	return out
}

// submit queues an answer and calls done once with its score, or with the cause
// why it has none: at the latest after max_wait, or when ctx ends.
func (s *service) submit(ctx context.Context, c grade.Case, done func(grade.Score)) {
	limited, cancel := context.WithTimeout(ctx, s.cfg.MaxWait.Std())
	w := &waiting{Case: c, ctx: limited, cancel: cancel, done: done}
	context.AfterFunc(limited, func() {
		cause := grade.TimedOut
		if last := w.cause.Load(); last != nil {
			cause = *last
		}
		if ctx.Err() != nil {
			cause = grade.Stopped
		}
		w.resolve(grade.Missing(cause)) // does nothing if the score is what ended the wait
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, w)
	if s.room == nil && len(s.queue) >= s.longQueue() {
		s.room = make(chan struct{})
	}
	if s.active < s.cfg.Concurrency {
		s.active++
		go s.work()
	}
}

// longQueue is how many waiting answers hold back further items: as many as two
// rounds of requests take.
func (s *service) longQueue() int { return 2 * s.cfg.Batch * s.cfg.Concurrency }

func (s *service) awaitRoom(ctx context.Context, stopping <-chan struct{}) bool {
	s.mu.Lock()
	room := s.room
	s.mu.Unlock()
	if room == nil {
		return true
	}
	select {
	case <-room:
		return true
	case <-stopping:
	case <-ctx.Done():
	}
	return false
}

// work sends batches until the queue is empty.
func (s *service) work() {
	for b := s.next(); b != nil; b = s.next() {
		s.score(b)
	}
}

// next takes a batch from the queue. It returns nil, and counts the goroutine out,
// if the queue is empty.
func (s *service) next() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{}
	taken := 0
	for _, w := range s.queue {
		if len(b.waiting) == s.cfg.Batch {
			break
		}
		taken++
		if !w.resolved.Load() {
			b.waiting = append(b.waiting, w)
		}
	}
	clear(s.queue[:taken])
	s.queue = s.queue[taken:]
	if s.room != nil && len(s.queue) < s.longQueue() {
		close(s.room)
		s.room = nil
	}
	if len(b.waiting) == 0 {
		s.active--
		return nil
	}
	return b
}

// score asks for the scores of a batch until it has them or gives up.
func (s *service) score(b *batch) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(b.waiting)))
	for _, w := range b.waiting {
		context.AfterFunc(w.ctx, func() {
			if left.Add(-1) == 0 { // none of them waits any more
				cancel()
			}
		})
	}
	failed := s.askAll(ctx, b, s.cfg.Retries)
	if failed == nil {
		return
	}
	unscored := b.still()
	if len(unscored) > 1 && failed.perhapsOne {
		for _, w := range unscored {
			s.askAll(ctx, &batch{[]*waiting{w}}, min(s.cfg.Retries, maxSingleRetries))
		}
		unscored = b.still()
	}
	for _, w := range unscored {
		w.resolve(grade.Missing(*w.cause.Load()))
	}
}

// askAll asks for the scores of the whole batch, with retries. It returns the last
// failure, or nil if every answer is resolved.
func (s *service) askAll(ctx context.Context, b *batch, retries int) (last *failure) {
	policy := retry.Policy{Tries: 1 + retries, Base: firstBackoff, Max: lastBackoff,
		Rand: func() float64 { return rand.Float64() / 2 }} // waits at least half of it
	err := policy.Do(ctx, func(int) error {
		unscored := b.still()
		if len(unscored) == 0 {
			return nil
		}
		if last = s.askOnce(ctx, unscored); last != nil {
			return last.err
		}
		return nil
	})
	if err == nil || ctx.Err() != nil { // none of them waits any more
		return nil
	}
	return last
}

// askOnce makes one request, and resolves the answers with its scores. If it
// fails, they keep the cause.
func (s *service) askOnce(ctx context.Context, ws []*waiting) *failure {
	cases := make([]grade.Case, len(ws))
	for i, w := range ws {
		cases[i] = w.Case
	}
	// Of the answers' shards, the first one's trace has the request.
	ctx = trace.ContextWithSpan(ctx, trace.SpanFromContext(ws[0].ctx))
	scores, failed := s.ask(ctx, cases)
	if ctx.Err() != nil && failed != nil {
		return nil // none of them waits any more
	}
	if failed != nil {
		s.warn(failed)
		for _, w := range ws {
			w.cause.Store(&failed.cause)
		}
		return failed
	}
	for i, w := range ws {
		w.resolve(scores[i])
	}
	return nil
}

// warn logs a failure, at most once a minute.
func (s *service) warn(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.warned) >= warnEvery {
		s.warned = now
		s.log.Warn("a scoring service gives no scores", "service", s.name, "cause", f.cause,
			"error", string(s.conceal([]byte(f.err.Error()))))
	}
}
