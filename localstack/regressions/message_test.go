package regressions

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/config"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// depth is the number of messages in a queue, hidden ones included.
func (p *system) depth(name string) int {
	p.t.Helper()
	visible, hidden, err := p.ports.Queues.(queue.Depther).Depth(p.t.Context(), name)
	must(p.t, err)
	return visible + hidden
}

func TestC37WorkLongerThanTheVisibilityTimeoutIsDoneOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hides, takes time.Duration
		items        int
	}{
		"prefetched":                   {5 * time.Second, 3 * time.Second, 30},
		"three times the visibility":   {5 * time.Second, 15 * time.Second, 30},
		"three times the default":      {0, 90 * time.Second, 30},
		"many shorter than visibility": {time.Second, 300 * time.Millisecond, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure("[shard]\nitems = 1")
				e := newRecordingEngine(after(c.takes))
				ports := p.intercept(interceptors{hides: c.hides})
				p.functions()
				for range 2 {
					p.work(setup{engine: e, inFlight: 10, ports: ports})
				}
				id := p.upload("prompts/x.jsonl", prompts(c.items))
				p.await("the workers hold all that they may", func() bool { return len(e.requests()) >= 20 })
				// Messages of claimed shards are acknowledged at once; the others may wait.
				if n, most := p.depth(host.WorkQueue("default")), c.items-20; n > most {
					t.Errorf("%d messages are in the queue while 20 of %d shards are claimed", n, c.items)
				}
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantItems(t, c.items, "")
				if got := len(e.requests()); got != c.items {
					t.Errorf("%d requests for %d items", got, c.items)
				}
				for _, d := range p.shards(id) {
					if d.Attempt != 1 {
						t.Errorf("shard %d was claimed %d times, want once", d.Shard, d.Attempt)
					}
				}
				for _, q := range []string{host.WorkQueue("default"), queue.DeadLetterQueue(host.WorkQueue("default")),
					queue.DeadLetterQueue(host.CoordinateQueue), queue.DeadLetterQueue(host.TaskQueue)} {
					if n := p.depth(q); n > 0 {
						t.Errorf("%d messages are in %s at the end", n, q)
					}
				}
			})
		})
	}
}

func TestC38OldOrLostMessagesChangeNoResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age  time.Duration
		lose bool
	}{
		"11 h 59":               {11*time.Hour + 59*time.Minute, false},
		"longer than any queue": {15 * 24 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure("[shard]\nitems = 2")
				stop := p.functions()
				id := p.upload("prompts/x.jsonl", prompts(9))
				p.await("the run is dispatched", func() bool { return p.state(id).NextShard == 5 })
				stop()
				time.Sleep(c.age) // nothing runs
				if c.lose {
					for p.depth(host.WorkQueue("default")) > 0 {
						ms, err := p.ports.Queues.Receive(t.Context(), host.WorkQueue("default"), 10, time.Minute, 0)
						must(t, err)
						for _, m := range ms {
							must(t, p.ports.Queues.Ack(t.Context(), host.WorkQueue("default"), []string{m.Receipt}))
						}
					}
				}
				e := newRecordingEngine(nil)
				p.work(setup{engine: e})
				p.functions()
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantItems(t, 9, "")
				if got := len(e.requests()); got != 9 {
					t.Errorf("%d requests for 9 items, want 9", got)
				}
			})
		})
	}
}

func TestC38ShardIsHeldLongerThanAMessageCanBe(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		// Rare heartbeats, as in clouds, keep the 13 hours short.
		p.deploy.Health = config.Health{Interval: config.Duration(time.Minute), SelfFence: config.Duration(4 * time.Minute),
			FailureTimeout: config.Duration(5 * time.Minute), SkewBudget: config.Duration(time.Second)}
		p.deploy.Worker.ProgressTimeout = config.Duration(14 * time.Hour)
		p.patience = 20 * time.Hour
		p.pollGap = time.Minute
		stop := p.functions()
		e := newRecordingEngine(after(13 * time.Hour))
		p.work(setup{engine: e})
		id := p.upload("prompts/x.jsonl", prompts(3))
		p.await("the shard is held", func() bool { return len(e.requests()) == 3 })
		stop() // no function runs for half a day
		time.Sleep(12 * time.Hour)
		p.functions()
		p.work(setup{engine: e})
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantItems(t, 3, "")
		if d := p.shards(id)[0]; d.Attempt != 1 || len(e.requests()) != 3 {
			t.Errorf("attempt %d and %d requests, want 1 and 3", d.Attempt, len(e.requests()))
		}
	})
}

func TestC40LostReplyOfAnAppliedWriteIsRecognised(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 2")
		id := p.upload("prompts/x.jsonl", prompts(20))
		// Every write is applied. The reply is lost of every second write of a
		// document, every fifth put of an object and every 13th message. Objects
		// and messages lose fewer, since a retried put has another name and a
		// retried send repeats ten messages.
		var writes counter
		lose := func(what string, every int, apply func() error) error {
			err := apply()
			if err == nil && writes.add(what)%every == 1 {
				return errGone()
			}
			return err
		}
		p.ports = *p.intercept(interceptors{
			put:   func(_ string, apply func() error) error { return lose("puts", 5, apply) },
			write: func(key string, _ []byte, apply func() error) error { return lose(key, 2, apply) },
			send:  func(queue string, _ []byte, apply func() error) error { return lose(queue, 13, apply) },
		})
		e := newRecordingEngine(after(100 * time.Millisecond))
		p.functions()
		p.work(setup{engine: e})
		p.work(setup{engine: e})
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantItems(t, 20, "")
		if got := len(e.requests()); got != 20 {
			t.Errorf("%d requests for 20 items: a worker did not recognise its own claim", got)
		}
		for _, d := range p.shards(id) {
			if d.Attempt != 1 || d.State != shard.Done {
				t.Errorf("shard %d is %s at attempt %d", d.Shard, d.State, d.Attempt)
			}
		}
		if writes.of("shard/") < 20 || writes.of("puts") < 10 || writes.of("work-default") < 10 {
			t.Errorf("too few replies were lost for the test: %v", writes.n)
		}
	})
}

func TestC42ClaimWritesOnlyShardAndHeartbeat(t *testing.T) {
	t.Parallel()
	const workers, items = 200, 400
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 1")
		var written, tried counter
		full := make(chan struct{}, items)
		e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
			full <- struct{}{}
			return after(5*time.Second)(ctx, r)
		})
		for i := range workers {
			own := record.HeartbeatKey(fmt.Sprintf("worker%d", i+1))
			p.work(setup{engine: e, inFlight: 2, ports: p.intercept(interceptors{write: func(key string, _ []byte,
				apply func() error) error {
				tried.add(key)
				err := apply()
				if err == nil {
					written.add(key)
				}
				if key != own && !strings.HasPrefix(key, "shard/") {
					t.Errorf("a worker wrote %s", key)
				}
				return err
			}})})
		}
		p.functions()
		id := p.upload("prompts/x.jsonl", prompts(items))
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantItems(t, items, "")
		written.mu.Lock()
		defer written.mu.Unlock()
		for key, n := range written.n {
			if strings.HasPrefix(key, "shard/") && n != 2 {
				t.Errorf("%s was written %d times, want a claim and a commit", key, n)
			}
		}
		if lost := tried.of("shard/") - 2*items; lost > 0 {
			t.Errorf("%d writes of shards conflicted", lost)
		}
		if s := p.state(id); s.Steps > 120 {
			t.Errorf("the run took %d steps, want at most 120", s.Steps)
		}
	})
}
