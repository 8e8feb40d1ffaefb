package interrupt_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/clock"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

const instance = "i-0123456789abcdef0"

// newFixture is a fleet of workers w1 and w2 on the instance, w3 on another, w4 gone
// from it, and w5 on a laptop.
func newFixture(t *testing.T) (host.Ports, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	p := host.Ports{Docs: memory.NewDocuments(), Clock: clock.System{}, Log: slog.New(slog.NewTextHandler(log, nil)), Source: "test"}
	for _, b := range []health.Heartbeat{
		{Worker: "w1", State: health.Ready, Instance: instance}, {Worker: "w2", State: health.Draining, Instance: instance},
		{Worker: "w3", State: health.Ready, Instance: "i-0fffffffffffffff0"}, {Worker: "w4", State: health.Gone, Instance: instance}, {Worker: "w5", State: health.Ready},
	} {
		b.Schema = 1
		hosttest.Save(t, p, record.HeartbeatKey(b.Worker), b)
	}
	return p, log
}

// marked are the workers that shall drain.
func marked(t *testing.T, p host.Ports) (workers []string) {
	t.Helper()
	for d, err := range document.All(t.Context(), p.Docs, "worker/") {
		var m record.WorkerMark
		if err != nil || record.Decode(d.Value, &m, d.Key) != nil {
			t.Fatalf("%s: %v", d.Key, err)
		}
		if m.DrainReason != "" {
			workers = append(workers, strings.TrimPrefix(d.Key, "worker/"))
		}
	}
	return workers
}

func TestTheWorkersOfAMachineDrain(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	if _, err := p.Docs.Create(t.Context(), "beat/w0", []byte("of another version")); err != nil {
		t.Fatal(err)
	}
	if err := interrupter(p).Handle(t.Context(), stopping(instance, "spot interruption")); err != nil {
		t.Fatal(err)
	}
	if got := marked(t, p); !slices.Equal(got, []string{"w1", "w2"}) {
		t.Errorf("%q shall drain", got)
	}
	if m := hosttest.Load[record.WorkerMark](t, p, record.WorkerKey("w1")); m.DrainReason != "spot interruption" || m.Sequence != 1 {
		t.Errorf("the mark is %+v", m)
	}
}

// Five notices at once are one mark, with the first reason; what else is marked
// of the worker stays.
func TestFiveNoticesAreOneMark(t *testing.T) {
	t.Parallel()
	p, log := newFixture(t)
	failed := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hosttest.Save(t, p, record.WorkerKey("w1"), record.WorkerMark{Schema: 1, Sequence: 7, Failed: failed})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if err := interrupter(p).Handle(t.Context(), stopping(instance, "spot interruption")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := interrupter(p).Handle(t.Context(), stopping(instance, "the instance is terminated")); err != nil {
		t.Error(err)
	}
	if m := hosttest.Load[record.WorkerMark](t, p, record.WorkerKey("w1")); m.Sequence != 8 || m.DrainReason != "spot interruption" || !m.Failed.Equal(failed) {
		t.Errorf("the mark is %+v", m)
	}
	if n := strings.Count(log.String(), "worker=w1"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

func TestAMachineWithoutWorkersIsLeftAlone(t *testing.T) {
	t.Parallel()
	p, log := newFixture(t)
	if err := interrupter(p).Handle(t.Context(), stopping("i-00000000", "spot interruption")); err != nil || len(marked(t, p)) != 0 || !strings.Contains(log.String(), "i-00000000") {
		t.Errorf("%q shall drain, %v:\n%s", marked(t, p), err, log)
	}
	if err := interrupter(p).Handle(t.Context(), stopping("", "spot interruption")); !fault.Is(err, fault.Invalid) || len(marked(t, p)) != 0 {
		t.Errorf("of no machine: %v", err)
	}
}
