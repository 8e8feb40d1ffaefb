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
	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/record"
)

// inCloud has the timings of a cloud, where a schedule calls ScanOnce each minute.
var inCloud = host.Timings(config.DefaultCloudHealth())

// scheduled are the options of a cloud.
func scheduled(onNeed func(string, scaling.Demand)) ScheduleOptions {
	return ScheduleOptions{Timings: inCloud, OnNeed: onNeed, Uploads: UploadOptions{Bucket: bucketName, Recent: true}}
}

func (d fixture) once() []events.Payload {
	d.t.Helper()
	if err := ScanOnce(d.t.Context(), d.Ports, scheduled(nil)); err != nil {
		d.t.Error(err)
	}
	return d.received(host.CoordinateQueue)
}

// renew saves a worker's heartbeat of now, with the timings of a cloud.
func (d fixture) renew(worker string, holds ...health.HeldShard) {
	now := time.Now()
	d.save("beat/"+worker, health.Heartbeat{Schema: 1, Worker: worker, State: health.Ready,
		At: now, DueAt: inCloud.Due(now), Holds: holds})
}

// Every minute a process without memory scans. A worker is found dead once it is
// dead, and not before.
func TestScanOnceFindsDeadWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		held := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
		d.running(id, time.Now())
		d.holder(0)
		for range 5 {
			for range 6 {
				d.renew("w1", held)
				<-time.After(10 * time.Second)
			}
			if got := d.once(); len(got) != 0 {
				t.Fatalf("of a living worker it reported %v", got)
			}
		}
		began := time.Now().Add(-10 * time.Second) // its last heartbeat
		for {
			got := d.once()
			over := time.Since(began)
			if len(got) == 1 && got[0].(events.ShardLost).Worker == "w1" {
				if over < inCloud.Due(began).Sub(began)+inCloud.FailureTimeout || over > 3*time.Minute {
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
			t.Errorf("%d observations:\n%s", n, d.log)
		}
	})
}

// frozenDocs suspends the process for an hour before each list.
type frozenDocs struct{ document.Store }

func (s frozenDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	<-time.After(time.Hour)
	return s.Store.List(ctx, prefix, after, limit)
}

// A function may be suspended for any time, before a scan and during it, without
// judging a living worker dead.
func TestScanOnceJudgesNoLivingWorkerDeadAfterAFreeze(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		held := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
		d.running(id, time.Now())
		d.holder(0)
		end, all := make(chan struct{}), sync.WaitGroup{}
		defer all.Wait()
		defer close(end)
		others := d // is not suspended
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
		d.Ports.Docs = frozenDocs{d.Ports.Docs}
		for range 3 {
			if got := d.once(); len(got) != 0 {
				t.Errorf("reported %v", got)
			}
			<-time.After(time.Hour)
		}
		if strings.Contains(d.log.String(), events.ObserveWorkerFailed) {
			t.Error("the worker was judged dead")
		}
	})
}

// recordingDocs records the requests to the documents.
type recordingDocs struct {
	document.Store
	calls []string
}

func (a *recordingDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	a.calls = append(a.calls, "list "+prefix)
	return a.Store.List(ctx, prefix, after, limit)
}

func (a *recordingDocs) Get(ctx context.Context, key string) (document.Doc, error) {
	a.calls = append(a.calls, "get")
	return a.Store.Get(ctx, key)
}

func (a *recordingDocs) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	a.calls = append(a.calls, "get many")
	return a.Store.GetMany(ctx, keys)
}

// An idle installation costs one empty list for each scan, and once an hour the
// heartbeats.
func TestScanOfIdleInstallationReadsOneEmptyList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.beat("w1", 2*time.Hour, health.Gone)
		docs := &recordingDocs{Store: d.Ports.Docs}
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
		all, err := d.Docs.List(t.Context(), "", "", 10)
		if err != nil || len(all) != 3 || all[0].Key != record.RunIndexKey || all[1].Key != record.OrphanSweepKey ||
			all[2].Key != record.UploadScanKey {
			t.Errorf("%d documents are left, the index of runs among them, of a worker that ended long ago, %v", len(all), err)
		}
	})
}
