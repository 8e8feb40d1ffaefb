package worker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const idle = 5 * time.Minute

func TestWorkerDrainsAfterIdleTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		answer := func(ctx context.Context, _ int) error { return answerAfter(ctx, 10*time.Minute) }
		w := d.start("w1", &fakeExecutor{answer: answer})
		advance(4 * time.Minute)
		d.sendWork(0)
		advance(8 * time.Minute) // the items are being answered
		if left, drained := w.DrainIfIdle(idle); drained || left != idle {
			t.Errorf("with a held shard: drained %v, else in %s", drained, left)
		}
		advance(4 * time.Minute) // the shard was done two minutes ago
		if d.shard(0).State != shard.Done {
			t.Fatal("the shard is not done: the test needs it to be")
		}
		if n := w.Answered(); n != 2 {
			t.Errorf("it has answered %d items, want 2", n)
		}
		left, drained := w.DrainIfIdle(idle)
		if drained || left < 2*time.Minute || left > 4*time.Minute {
			t.Errorf("two minutes after its last shard: drained %v, else in %s", drained, left)
		}
		advance(left)
		if _, drained := w.DrainIfIdle(idle); !drained || !w.ended() || w.err != nil {
			t.Errorf("after the idle time: drained %v, ended %v, %v", drained, w.ended(), w.err)
		}
	})
}

func TestDrainIfIdleLeavesDrainingWorkerAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, 1, 2).start("w1", &fakeExecutor{})
		advance(2 * idle)
		w.Drain("preempted")
		if _, drained := w.DrainIfIdle(idle); drained {
			t.Error("DrainIfIdle reports a drain that it did not start")
		}
	})
}

// A server that restarts takes its time, and the work for it waits.
func TestWorkerWithUnreadyEngineWaitsLongerBeforeDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ready := func() error { return fault.New(fault.Unavailable, "starting") }
		w := newFixture(t, 1, 2).start("w1", &fakeExecutor{ready: ready})
		advance(19 * time.Minute)
		if _, drained := w.DrainIfIdle(idle); drained {
			t.Error("drained after 19 minutes")
		}
		advance(2 * time.Minute)
		if _, drained := w.DrainIfIdle(idle); !drained {
			t.Error("not drained after 21 minutes")
		}
	})
}

// polls counts receive requests by queue.
type polls struct {
	queue.Queues
	mu    sync.Mutex
	count map[string]int
}

func (p *polls) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) (
	[]queue.Message, error) {
	p.mu.Lock()
	p.count[name]++
	p.mu.Unlock()
	return p.Queues.Receive(ctx, name, most, visibility, wait)
}

// Where each queue request costs money, an idle worker makes few, and still finds
// work at once.
func TestIdleWorkerWithLongPollsFindsWorkAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 2)
		p := &polls{Queues: d.Queues, count: map[string]int{}}
		d.Queues = p
		d.start("w1", &fakeExecutor{}, func(c *worker.Config) { c.LongPoll = 20 * time.Second })
		advance(10 * time.Minute)
		urgent, usual := host.UrgentQueue("default"), host.WorkQueue("default")
		p.mu.Lock()
		if u, w := p.count[urgent], p.count[usual]; u != 31 || w != 31 {
			t.Errorf("%d and %d requests in 10 minutes, want 31 each", u, w)
		}
		p.mu.Unlock()
		for i, q := range []string{usual, urgent, usual} {
			d.send(q, events.Work{Run: string(run), Shard: i, Row: i, Pool: "default"})
			advance(100 * time.Millisecond)
			if s := d.shard(i); s.State != shard.Done {
				t.Errorf("the shard in %s is %s", q, s.State)
			}
		}
	})
}

// writes counts the writes of documents by key.
type writes struct {
	document.Store
	mu    sync.Mutex
	count map[string]int
}

func (s *writes) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[key]++
}

// of returns how often the document was written since the last call.
func (s *writes) of(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.count[key]
	s.count[key] = 0
	return n
}

func (s *writes) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	s.add(key)
	return s.Store.Create(ctx, key, value)
}

func (s *writes) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error) {
	s.add(key)
	return s.Store.Replace(ctx, key, value, rev)
}

// lateness is a meter that notes how late heartbeats were written, and nothing else.
type lateness struct {
	mu    sync.Mutex
	beats int
	most  time.Duration
}

func (*lateness) RecordRequest(time.Duration, error)            {}
func (*lateness) RecordTokens(int64, int64, int64)              {}
func (*lateness) RecordScan(observe.Scan)                       {}
func (*lateness) RecordPluginCall(string, time.Duration, error) {}
func (*lateness) AddServerSource(func() []observe.Server)       {}

func (l *lateness) Count(e observe.Event) {
	if b, is := e.(observe.WorkerHeartbeat); is {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.beats, l.most = l.beats+1, max(l.most, b.Late)
	}
}

// No shard depends on the lease of a worker that holds none, so its heartbeats need only
// keep the lease. From the first message on they come as usual.
func TestRestingWorkerWritesFewHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		s := &writes{Store: d.Docs, count: map[string]int{}}
		d.Docs = s
		late := &lateness{}
		d.Watch.Meter = late
		answer := func(ctx context.Context, _ int) error { return answerAfter(ctx, 10*time.Second) }
		w := d.start("w1", &fakeExecutor{answer: answer})
		advance(10 * time.Second)
		key := record.HeartbeatKey("w1")
		s.of(key)
		advance(4 * time.Minute) // 4 s / 3 between heartbeats
		if n := s.of(key); n < 179 || n > 181 {
			t.Errorf("%d heartbeats in 4 minutes of rest, want 180", n)
		}
		timings := host.Timings(config.DefaultDeployment().Health)
		if timings.Dead(d.heartbeat("w1"), time.Now()) {
			t.Error("the resting worker is taken for dead")
		}
		advance(100 * time.Millisecond)
		d.sendWork(0)
		advance(timings.Interval)
		if b := d.heartbeat("w1"); len(b.Holds) != 1 {
			t.Errorf("an interval after the work came, the heartbeat lists %d shards, want 1", len(b.Holds))
		}
		s.of(key)
		advance(5 * time.Second)
		if n := s.of(key); n < 9 || n > 11 {
			t.Errorf("%d heartbeats in 5 seconds of work, want 10", n)
		}
		advance(10 * time.Minute)
		if w.ended() {
			t.Errorf("the worker ended: %v", w.err)
		}
		late.mu.Lock()
		defer late.mu.Unlock()
		if late.beats < 100 || late.most > 0 {
			t.Errorf("of %d heartbeats, one was late by %s", late.beats, late.most)
		}
	})
}
