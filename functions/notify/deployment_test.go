package notify_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/notify"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/secret"
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

// channel is a cloud's own channel, which takes all.
type channel struct{ taken []string }

func (*channel) Name() string { return "channel" }

func (c *channel) Deliver(_ context.Context, event []byte) error {
	c.taken = append(c.taken, string(event))
	return nil
}

// An installation in a cloud tells what happens by the cloud's own channel, with a webhook
// and without, and the channel does not wait for the webhook.
func TestTheCloudsChannelIsToldFirst(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	to := &channel{}
	told := 0
	w := newReceiver(t, func(_ int, _ http.ResponseWriter, take func()) {
		told = len(to.taken)
		take()
	})
	d := config.DefaultDeployment()
	for _, address := range []string{"", w.URL} {
		d.Notify.Webhook, d.Notify.Secret = address, "webhook-key"
		n := notify.ForDeployment(p, d, keys{}, to)
		i := &installation{Ports: p, Notifier: n, t: t, clock: &handClock{now: time.Now()}}
		before := len(to.taken)
		i.pause(i.submit(before).Run)
		if next, err := n.Deliver(t.Context()); err != nil || !next.IsZero() {
			t.Errorf("the next attempt is at %s, %v", next, err)
		}
		if len(to.taken) != before+1 {
			t.Errorf("the channel has %q", to.taken)
		}
	}
	if told != 2 || len(w.taken) != 1 {
		t.Errorf("the webhook got %v when the channel had %d events, want 2", w.taken, told)
	}
	if notify.ForDeployment(p, config.DefaultDeployment(), keys{}) != nil {
		t.Error("without a channel and a webhook there is a notifier")
	}
}

// keys is a store with the key of the webhook.
type keys struct{}

func (keys) Get(context.Context, string) (secret.Value, error) { return secret.NewValue(key), nil }

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
