package notify_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/notify"
	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
)

// silent is a destination that does not answer.
type silent struct{ calls atomic.Int32 }

func (*silent) Name() string { return "webhook" }

func (s *silent) Deliver(ctx context.Context, _ []byte) error {
	s.calls.Add(1)
	<-ctx.Done()
	return fault.WithKind(fault.Unavailable, ctx.Err(), "deliver")
}

// A function that delivers has a limited time, and does not fail because a receiver uses it up.
func TestDeliverOnceLeavesTheRestForTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &silent{}
		p := hosttest.New()
		n := notify.New(p, notify.Options{Source: "rollout/acme", Destinations: []notify.Destination{to},
			Timeout: 15 * time.Second})
		i := &installation{Ports: p, Notifier: n, t: t, clock: &handClock{now: time.Now()}}
		var ids []identity.RunID
		for k := range 40 {
			ids = append(ids, i.submit(k).Run)
		}
		i.pause(ids...)
		began := time.Now()
		if err := n.DeliverOnce(t.Context()); err != nil {
			t.Errorf("a slow receiver fails the call: %v", err)
		}
		if took := time.Since(began); took > 30*time.Second || to.calls.Load() == 0 || to.calls.Load() > 20 {
			t.Errorf("it took %s for %d attempts", took, to.calls.Load())
		}
	})
}

// writtenDocs counts the writes of documents.
type writtenDocs struct {
	document.Store
	writes atomic.Int32
}

func (d *writtenDocs) Create(ctx context.Context, key string, v []byte) (document.Revision, error) {
	d.writes.Add(1)
	return d.Store.Create(ctx, key, v)
}

func (d *writtenDocs) Replace(ctx context.Context, key string, v []byte, old document.Revision) (
	document.Revision, error) {
	d.writes.Add(1)
	return d.Store.Replace(ctx, key, v, old)
}

// Scans come with the same report several times a second, also while its event waits.
func TestRepeatedReportOfAPoolWritesNothing(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	docs := &writtenDocs{Store: p.Docs}
	p.Docs = docs
	n := notify.New(p, notify.Options{Source: "rollout/acme", Destinations: []notify.Destination{&silent{}},
		Timeout: time.Second})
	reports := []notify.PoolReport{{Pool: "default",
		Problem: notification.Problem{Kind: notification.BootFailed, At: time.Now(), Reason: "no driver"}}}
	for range 3 {
		if err := n.Pools(t.Context(), reports); err != nil {
			t.Fatal(err)
		}
		if w := docs.writes.Load(); w != 2 {
			t.Errorf("%d writes, want 2: the event and its entry", w)
		}
	}
	<-n.Added()
	select {
	case <-n.Added():
		t.Error("a repeated report wakes who delivers")
	default:
	}
}
