package reclaim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/host"
)

// cloud has the timings of a cloud, where a schedule calls Once each minute.
var cloud = host.Timings(config.DefaultCloudHealth())

func (d fixture) once() []events.Payload {
	d.t.Helper()
	if err := ScanOnce(d.t.Context(), d.Ports, cloud, nil); err != nil {
		d.t.Error(err)
	}
	return d.received(host.CoordinateQueue)
}

// renew writes a worker's heartbeat of now, under the timings of a cloud.
func (d fixture) renew(worker string, holds ...health.HeldShard) {
	now := time.Now()
	d.save("beat/"+worker, health.Heartbeat{Schema: 1, Worker: worker, State: health.Ready, At: now, DueAt: cloud.Due(now), Holds: holds})
}

// Each minute a process that knows nothing of the one before: a worker that
// dies is found when it is dead, and only then.
func TestAWorkerThatDiesIsFoundByScansAMinuteApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		held := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
		d.waits(id, time.Now())
		d.save(identity.ShardKey(id, 0), shard.Doc{Schema: 1, Run: id, State: shard.Running, Worker: "w1", Attempt: 1, ClaimedAt: time.Now()})
		for range 5 {
			for range 6 {
				d.renew("w1", held)
				<-time.After(10 * time.Second)
			}
			if said := d.once(); len(said) != 0 {
				t.Fatalf("it lives, reported %v", said)
			}
		}
		began := time.Now().Add(-10 * time.Second) // its last heartbeat
		for {
			said := d.once()
			over := time.Since(began)
			if len(said) == 1 && said[0].(events.ShardLost).Worker == "w1" {
				if over < cloud.Due(began).Sub(began)+cloud.FailureTimeout || over > 3*time.Minute {
					t.Errorf("found dead %v after its last heartbeat", over)
				}
				break
			}
			if over > time.Hour {
				t.Fatal("it is never found dead")
			}
			<-time.After(time.Minute)
		}
		if n := strings.Count(d.log.String(), events.ObserveWorkerFailed); n != 1 {
			t.Errorf("%d reports of it:\n%s", n, d.log)
		}
	})
}

// stalled stops the process for an hour before each list that it asks for.
type stalled struct{ document.Store }

func (s stalled) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	<-time.After(time.Hour)
	return s.Store.List(ctx, prefix, after, limit)
}

// A function may be stopped for any time, before a scan and within: nobody is
// dead for that.
func TestAFunctionThatWasFrozenKillsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		held := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
		d.waits(id, time.Now())
		d.save(identity.ShardKey(id, 0), shard.Doc{Schema: 1, Run: id, State: shard.Running, Worker: "w1", Attempt: 1, ClaimedAt: time.Now()})
		end, all := make(chan struct{}), sync.WaitGroup{}
		defer all.Wait()
		defer close(end)
		others := d // which nothing stops
		all.Go(func() {
			for {
				others.renew("w1", held)
				select {
				case <-time.After(10 * time.Second):
				case <-end:
					return
				}
			}
		})
		d.Ports.Docs = stalled{d.Ports.Docs}
		for range 3 {
			if said := d.once(); len(said) != 0 {
				t.Errorf("reported %v", said)
			}
			<-time.After(time.Hour)
		}
		if strings.Contains(d.log.String(), events.ObserveWorkerFailed) {
			t.Error("it was found dead")
		}
	})
}

// asked notes what is asked of the documents.
type asked struct {
	document.Store
	calls []string
}

func (a *asked) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	a.calls = append(a.calls, "list "+prefix)
	return a.Store.List(ctx, prefix, after, limit)
}

func (a *asked) Get(ctx context.Context, key string) (document.Doc, error) {
	a.calls = append(a.calls, "get")
	return a.Store.Get(ctx, key)
}

func (a *asked) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	a.calls = append(a.calls, "get many")
	return a.Store.GetMany(ctx, keys)
}

// Where nothing is to do a scan asks for one empty list, and once an hour for
// the heartbeats: that is what an idle installation costs.
func TestAnIdleInstallationIsAskedForOneEmptyList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.beat("w1", 2*time.Hour, health.Gone)
		docs := &asked{Store: d.Ports.Docs}
		d.Ports.Docs = docs
		<-time.After(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 30*time.Second)))
		d.once()
		if !slices.Contains(docs.calls, "list beat/") {
			t.Errorf("at the full hour: %q", docs.calls)
		}
		docs.calls = nil
		for range 59 {
			<-time.After(time.Minute)
			d.once()
		}
		if len(docs.calls) != 59 || slices.ContainsFunc(docs.calls, func(c string) bool { return c != "list open/" }) {
			t.Errorf("within the hour: %q", docs.calls)
		}
		if all, err := d.Docs.List(t.Context(), "", "", 10); err != nil || len(all) != 0 {
			t.Errorf("%d documents are left of a worker that is long gone, %v", len(all), err)
		}
	})
}
