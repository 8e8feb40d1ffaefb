package inprocess

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

const id = inputtest.RunID

func newSystem() *System {
	p := hosttest.New()
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}}
	return New(p, Config{Deployment: d})
}

// start runs f until the test ends.
func start(t *testing.T, f func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// pass lets d pass in the bubble, and waits until all goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// calls records when a handler was called.
type calls struct {
	mu sync.Mutex
	at []time.Time
}

func (c *calls) add() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
	return len(c.at)
}

func TestFailedMessageIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		var c calls
		start(t, func(ctx context.Context) {
			s.consume(ctx, "q", func(context.Context, events.Payload) error {
				if c.add() < 6 {
					return fault.New(fault.Unavailable, "not now")
				}
				return nil
			})
		})
		if err := s.Send(t.Context(), "q", events.Wakeup{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		var waits []time.Duration
		for i := 1; i < len(c.at); i++ {
			waits = append(waits, c.at[i].Sub(c.at[i-1]))
		}
		want := []time.Duration{400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
			3200 * time.Millisecond, 6400 * time.Millisecond}
		if !slices.Equal(waits, want) {
			t.Errorf("it is delivered again after %v, want %v", waits, want)
		}
		if visible, hidden, _ := s.Queues.(queue.Depther).Depth(t.Context(), "q"); visible+hidden != 0 {
			t.Error("it is not acknowledged")
		}
	})
}

func TestMessageStaysHiddenWhileItIsHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		var c calls
		for range 2 {
			start(t, func(ctx context.Context) {
				s.consume(ctx, "q", func(ctx context.Context, _ events.Payload) error {
					c.add()
					sleep(ctx, 10*time.Minute)
					return nil
				})
			})
		}
		if err := s.Send(t.Context(), "q", events.Wakeup{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		pass(11 * time.Minute)
		if len(c.at) != 1 {
			t.Errorf("it was handled %d times", len(c.at))
		}
	})
}

func TestMessagesWithoutAHandlerAreDeadLettered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		start(t, func(ctx context.Context) { s.consume(ctx, host.TaskQueue, s.dispatch) })
		if err := s.Queues.Send(t.Context(), host.TaskQueue, [][]byte{[]byte("{")}, 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Send(t.Context(), host.TaskQueue, events.Wakeup{Run: string(id)}); err != nil { // for coordinate
			t.Fatal(err)
		}
		synctest.Wait()
		dead := queue.DeadLetterQueue(host.TaskQueue)
		if visible, _, _ := s.Queues.(queue.Depther).Depth(t.Context(), dead); visible != 2 {
			t.Errorf("%d dead letters", visible)
		}
	})
}

// follows plans a run of two shards, the first of which is done, and passes the
// state to the system as coordinate does after a save. It returns the state.
func follows(t *testing.T, s *System, r identity.RunID) run.State {
	t.Helper()
	m := inputtest.Manifest(1)
	m.Run = r
	inputtest.Plan(t, s.Ports, m, inputtest.Prompts(0, 2))
	for n := range 2 {
		row := fmt.Sprintf("row %d\n", n)
		key := record.ShardObjectKey(r, n, 1, "x")
		hosttest.Put(t, s.Ports, key, row)
		ref := shard.Ref{Key: key, Length: int64(len(row)), Digest: identity.Content([]byte(row)).String()}
		hosttest.Save(t, s.Ports, identity.ShardKey(r, n), shard.Doc{Schema: 1, Run: r, Shard: n, State: shard.Done,
			Items: 1, OutputLen: int64(len(row)), Result: &ref, Counts: shard.Counts{OK: 1}})
	}
	st := run.New(r)
	st.Phase, st.Shards, st.Items, st.Complete, st.NextShard = run.Running, 2, 2, true, 2
	st.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 1})
	s.onSaved(st)
	return st
}

// final returns the state when both shards are done.
func final(st run.State) run.State {
	st.Phase, st.Reason, st.FrozenFrontier = run.Finalizing, run.ReasonDone, 2
	st.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 2})
	return st
}

// Scans are rare while no run is open, but an ended run is moved as soon as one is due
// otherwise, also if others are saved all the time.
func TestEndedRunIsMovedAtOnceWhileReclaimIsIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		start(t, s.runReclaim)
		every := s.cfg.Deployment.Health.Interval.Std() / 2
		pass(every * (idleScans + 1))
		pass(every / 2) // the next scan is due after almost all of an idle wait
		m := inputtest.Manifest(1)
		st := run.New(id)
		st.Phase, st.EndedAt = run.Stopped, time.Now()
		hosttest.Save(t, s.Ports, record.ManifestKey(id), m)
		hosttest.Save(t, s.Ports, record.OpenRunKey(id), record.OpenRun{Schema: 1, Run: id, At: time.Now()})
		hosttest.Save(t, s.Ports, record.CoordinatorKey(id), st)
		for range 4 {
			s.onSaved(st)
			pass(every / 4)
		}
		if _, err := s.Docs.Get(t.Context(), record.OpenRunKey(id)); !fault.Is(err, fault.NotFound) {
			t.Errorf("it is still open: %v", err)
		}
	})
}

func following(s *System) int {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	return len(s.followers.byRun)
}

func TestFollowedRunIsFinalizedByItsFollower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		start(t, s.runFollowers)
		synctest.Wait()
		st := final(follows(t, s, id))
		synctest.Wait()
		hosttest.Save(t, s.Ports, record.CoordinatorKey(id), st)
		// The event comes before onSaved is called.
		if err := s.finalizeOrWait(t.Context(), events.Finalize{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got := hosttest.Object(t, s.Ports, record.OutputKey(id, record.CompletionsFile))
		if got != "row 0\nrow 1\n" || following(s) != 0 {
			t.Errorf("completions are %q, %d followers", got, following(s))
		}
	})
}

func TestFollowerReadsTheStateOfOtherProcesses(t *testing.T) {
	t.Parallel()
	for _, phase := range []run.Phase{run.Finalizing, run.Completed} {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem()
			start(t, s.runFollowers)
			synctest.Wait()
			st := final(follows(t, s, id))
			st.Phase = phase
			hosttest.Save(t, s.Ports, record.CoordinatorKey(id), st)
			pass(11 * time.Second)
			_, err := s.Blobs.Stat(t.Context(), record.OutputKey(id, record.SummaryFile), "")
			if following(s) != 0 || (err == nil) != (phase == run.Finalizing) {
				t.Errorf("%s: %d followers; the summary: %v", phase, following(s), err)
			}
			if visible, _, _ := s.Queues.(queue.Depther).Depth(t.Context(), host.TaskQueue); visible != 0 {
				t.Errorf("%s: asked to finalize", phase)
			}
		})
	}
}

func TestFailedFollowerAsksForFinalize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		start(t, s.runFollowers)
		synctest.Wait()
		st := follows(t, s, id)
		d := hosttest.Load[shard.Doc](t, s.Ports, identity.ShardKey(id, 1))
		d.OutputLen = -1
		hosttest.Save(t, s.Ports, identity.ShardKey(id, 1), d)
		s.onSaved(final(st))
		synctest.Wait()
		ms, _ := s.Queues.Receive(t.Context(), host.TaskQueue, 1, time.Minute, 0)
		if len(ms) != 1 || following(s) != 0 {
			t.Fatalf("%d tasks, %d followers", len(ms), following(s))
		}
		if _, p, _ := events.Decode(ms[0].Body); p != (events.Finalize{Run: string(id)}) {
			t.Errorf("asked for %v", p)
		}
	})
}

func TestMaxFollowersBoundsTheFollowedRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		follows(t, s, id) // before Run no follower starts
		if following(s) != 0 {
			t.Fatal("a follower started before Run")
		}
		start(t, s.runFollowers)
		synctest.Wait()
		for n := range 2 * maxFollowers {
			follows(t, s, identity.RunID(fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K8C%02d", n)))
		}
		synctest.Wait()
		if n := following(s); n != maxFollowers {
			t.Errorf("%d runs are followed", n)
		}
	})
}
