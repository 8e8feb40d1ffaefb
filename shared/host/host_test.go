package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/memory"
	"rollout/shared/queue"
)

// counter is a document of the tests.
type counter struct {
	Schema int `json:"schema"`
	N      int `json:"n"`
}

func increment(c counter, _ bool) (counter, bool, error) { return counter{1, c.N + 1}, true, nil }

func TestConcurrentUpdatesAllCount(t *testing.T) {
	t.Parallel()
	docs := memory.NewDocuments()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, err := host.Update(t.Context(), docs, "c/x", increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var c counter
	if _, found, err := host.Load(t.Context(), docs, "c/x", &c); err != nil || !found || c.N != 400 {
		t.Errorf("%+v, %v", c, err)
	}
}

// contended is a store in which another writer is always first.
type contended struct {
	document.Store
	tries int
}

func (c *contended) Create(context.Context, string, []byte) (document.Revision, error) {
	c.tries++
	return "", fault.New(fault.Conflict, "another writer was first")
}

func TestUpdateGivesUpAfterManyConflicts(t *testing.T) {
	t.Parallel()
	docs := &contended{Store: memory.NewDocuments()}
	_, err := host.Update(t.Context(), docs, "c/x", increment)
	if !fault.Is(err, fault.Unavailable) || docs.tries != 64 {
		t.Errorf("after %d tries: %v", docs.tries, err)
	}
}

func TestUpdateMayLeaveTheDocumentUnchanged(t *testing.T) {
	t.Parallel()
	docs := memory.NewDocuments()
	refusal := errors.New("no")
	for _, c := range []struct {
		change func(counter, bool) (counter, bool, error)
		want   error
	}{
		{func(counter, bool) (counter, bool, error) { return counter{N: 9}, false, nil }, nil},
		{func(counter, bool) (counter, bool, error) { return counter{N: 9}, true, refusal }, refusal},
	} {
		if _, err := host.Update(t.Context(), docs, "c/x", c.change); !errors.Is(err, c.want) {
			t.Errorf("%v", err)
		}
		if _, err := docs.Get(t.Context(), "c/x"); !fault.Is(err, fault.NotFound) {
			t.Errorf("it was written: %v", err)
		}
	}
}

func TestLoadRejectsNewerSchemasAndBrokenJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value string
		kind  fault.Kind
		ok    bool
	}{
		"this schema":  {`{"schema":1,"n":7}`, 0, true},
		"no schema":    {`{"n":7}`, 0, true},
		"newer schema": {`{"schema":2,"n":7}`, fault.Invalid, false},
		"not JSON":     {`{`, fault.Corrupt, false},
		"another type": {`{"schema":1,"n":"x"}`, fault.Corrupt, false},
	} {
		docs := memory.NewDocuments()
		if _, err := docs.Create(t.Context(), "c/x", []byte(c.value)); err != nil {
			t.Fatal(err)
		}
		var v counter
		_, found, err := host.Load(t.Context(), docs, "c/x", &v)
		if found != c.ok || !c.ok && !fault.Is(err, c.kind) || c.ok && v.N != 7 {
			t.Errorf("%s: %+v, %v, %v", name, v, found, err)
		}
	}
}

func TestSaveCreatesWithoutARevisionAndReplacesWithOne(t *testing.T) {
	t.Parallel()
	docs := memory.NewDocuments()
	rev, err := host.Save(t.Context(), docs, "c/x", counter{1, 1}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := host.Save(t.Context(), docs, "c/x", counter{1, 2}, ""); !fault.Is(err, fault.Conflict) {
		t.Errorf("created twice: %v", err)
	}
	next, err := host.Save(t.Context(), docs, "c/x", counter{1, 2}, rev)
	if err != nil || next == rev {
		t.Errorf("%q after %q, %v", next, rev, err)
	}
	if _, err := host.Save(t.Context(), docs, "c/x", counter{1, 3}, rev); !fault.Is(err, fault.Conflict) {
		t.Errorf("saved over an old revision: %v", err)
	}
}

func TestEachSkipsDocumentsThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	docs := memory.NewDocuments()
	for key, value := range map[string]string{"b/1": `{"n":1}`, "b/2": `{`, "b/3": `{"schema":99}`, "b/4": `{"n":4}`} {
		if _, err := docs.Create(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	err := host.Each(t.Context(), docs, "b/", func(c counter) error { n += c.N; return nil })
	if n != 5 || err == nil || !strings.Contains(err.Error(), "b/2") || !strings.Contains(err.Error(), "b/3") {
		t.Errorf("the sum is %d, the error %v", n, err)
	}
}

func TestEachStopsAtTheFirstErrorAndKeepsToThePrefix(t *testing.T) {
	t.Parallel()
	docs := memory.NewDocuments()
	for _, key := range []string{"a/1", "b/1", "b/2", "c/1"} {
		if _, err := docs.Create(t.Context(), key, []byte(`{"schema":1,"n":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	if err := host.Each(t.Context(), docs, "b/", func(c counter) error { n += c.N; return nil }); err != nil || n != 2 {
		t.Errorf("%d documents, %v", n, err)
	}
	stop := errors.New("stop")
	n = 0
	err := host.Each(t.Context(), docs, "b/", func(counter) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d documents, %v", n, err)
	}
}

func TestSendPutsEventsIntoTheirEnvelopes(t *testing.T) {
	t.Parallel()
	p := hosttest.New().WithSource("plan")
	const run = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	if err := p.Send(t.Context(), "q", events.Wakeup{Run: run}, events.PlanAdvanced{Run: run}); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(t.Context(), "q"); err != nil {
		t.Errorf("nothing: %v", err)
	}
	ms, err := p.Queues.Receive(t.Context(), "q", 10, time.Minute, 0)
	if err != nil || len(ms) != 2 {
		t.Fatalf("%d messages, %v", len(ms), err)
	}
	e, pl, err := events.Decode(ms[0].Body)
	if err != nil || pl != (events.Wakeup{Run: run}) || e.Source != "rollout/plan" {
		t.Errorf("%+v in %+v, %v", pl, e, err)
	}
	err = p.Send(t.Context(), "q", events.Wakeup{Run: run}, events.Wakeup{Run: "no run"})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("an invalid payload: %v", err)
	}
	if ms, _ := p.Queues.Receive(t.Context(), "q", 10, time.Minute, 0); len(ms) != 0 {
		t.Errorf("%d messages of a send that failed", len(ms))
	}
}

// TestI8ChainsOfEventsEnd sends each event in the context of the one before, until
// Send refuses.
func TestI8ChainsOfEventsEnd(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	wakeup := events.Wakeup{Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE"}
	ctx := t.Context()
	for hops := range events.MaxHops + 1 {
		if err := p.Send(ctx, "q", wakeup); err != nil {
			t.Fatalf("after %d hops: %v", hops, err)
		}
		ms, err := p.Queues.Receive(t.Context(), "q", 1, time.Minute, 0)
		if err != nil || len(ms) != 1 {
			t.Fatalf("%d messages, %v", len(ms), err)
		}
		e, _, err := events.Decode(ms[0].Body)
		if err != nil || e.Hops != hops {
			t.Errorf("the event has %d hops, want %d, %v", e.Hops, hops, err)
		}
		ctx = host.WithCause(t.Context(), e)
	}
	if err := p.Send(ctx, "q", wakeup); !fault.Is(err, fault.Invalid) || !errors.Is(err, events.ErrTooManyHops) {
		t.Errorf("after all hops: %v", err)
	}
	if err := p.Send(ctx, "q"); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

func TestDeadLetterMovesTheMessage(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	if err := p.Queues.Send(t.Context(), "q", [][]byte{[]byte("what?")}, 0); err != nil {
		t.Fatal(err)
	}
	ms, err := p.Queues.Receive(t.Context(), "q", 1, time.Minute, 0)
	if err != nil || len(ms) != 1 {
		t.Fatal(ms, err)
	}
	if err := p.DeadLetter(t.Context(), "q", ms[0], errors.New("unknown type")); err != nil {
		t.Fatal(err)
	}
	visible, hidden, _ := p.Queues.(queue.Depther).Depth(t.Context(), "q")
	dead, _ := p.Queues.Receive(t.Context(), queue.DeadLetterQueue("q"), 1, time.Minute, 0)
	if visible+hidden != 0 || len(dead) != 1 || string(dead[0].Body) != "what?" {
		t.Errorf("%d messages left, dead letters %v", visible+hidden, dead)
	}
}

// TestPoolNameCannotBeADeadLetterQueue checks that a pool's queue never is the dead
// letter queue of another pool.
func TestPoolNameCannotBeADeadLetterQueue(t *testing.T) {
	t.Parallel()
	for _, pool := range []string{"small", queue.DeadLetterQueue("small")} {
		file := fmt.Appendf(nil, "schema_version = 1\n[[pool]]\nname = %q\nmodel = 'm'\n", pool)
		_, err := config.ParseDeployment("d.toml", file)
		if dead := queue.IsDeadLetterQueue(host.WorkQueue(pool)); dead != fault.Is(err, fault.Invalid) {
			t.Errorf("the pool %s: %v", pool, err)
		}
	}
}
