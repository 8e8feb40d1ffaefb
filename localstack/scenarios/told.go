package scenarios

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/localstack/fakellm"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/webhook"
)

// The secret that signs the events of a webhook. Its name in the cloud's store begins with the
// config's prefix of secrets.
const (
	WebhookSecretName = "webhook-key"
	WebhookSecret     = "correct horse"
)

// WebhookConfig returns the config of a webhook at an address.
func WebhookConfig(address string) string {
	return fmt.Sprintf("[cloud.secrets]\nallowlist = [%q]\n[notify]\nwebhook = %q\nsecret = %q\ntimeout = \"2s\"\n",
		WebhookSecretName, address, WebhookSecretName)
}

// Inbox is a destination of events, which refuses them while it is closed. It is safe for
// concurrent use.
type Inbox struct {
	Secret string // signs what comes as a webhook

	mu      sync.Mutex
	closed  bool
	refused int
	wrong   []string // of what it took
	events  []events.Envelope
}

// Take takes an event, a CloudEvent in JSON. It returns false if it refuses the event.
func (b *Inbox) Take(event []byte) bool {
	e, _, err := events.Decode(event)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		b.refused++
		return false
	case err != nil:
		b.wrong = append(b.wrong, fmt.Sprintf("%s: %v", event, err))
	default:
		b.events = append(b.events, e)
	}
	return true
}

// ServeHTTP takes the events of a webhook, with their signatures.
func (b *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has ended
	}
	seconds, err := strconv.ParseInt(r.Header.Get(webhook.TimestampHeader), 10, 64)
	id, signature := r.Header.Get(webhook.IDHeader), r.Header.Get(webhook.SignatureHeader)
	if err != nil || signature != webhook.Sign([]byte(b.Secret), id, time.Unix(seconds, 0), body) {
		b.mu.Lock()
		b.wrong = append(b.wrong, fmt.Sprintf("%s is signed as %q", body, signature))
		b.mu.Unlock()
	}
	if !b.Take(body) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// setClosed closes or opens the inbox.
func (b *Inbox) setClosed(closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = closed
}

// hasRefused reports whether the inbox has refused an event.
func (b *Inbox) hasRefused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused > 0
}

// Of returns the types of the events about a subject in the order in which they came first,
// without the parts that all have.
func (b *Inbox) Of(subject record.NotificationSubject) (types []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range b.events {
		if e.Subject == string(subject) && !seen[e.ID] {
			seen[e.ID] = true
			types = append(types, strings.TrimSuffix(strings.TrimPrefix(string(e.Type), "rollout."), ".v1"))
		}
	}
	return types
}

// Problem returns an error if something else than events came, or a wrong signature.
func (b *Inbox) Problem() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("this came: %s", strings.Join(b.wrong, "; "))
}

// Machines fail one after the other, until the run pauses by itself. It is resumed once they
// work, and ends with failed items, while the webhook and the cloud's own channel refuse
// everything: neither holds it up. Afterwards both get each event, those of the run in their
// order.
func peopleAreTold(t *testing.T, c Cloud) {
	channel, hook := &Inbox{closed: true}, &Inbox{closed: true, Secret: WebhookSecret}
	d := deploy(t, c, fakellm.Config{},
		Settings{Machines: 1, FromNone: true, Idle: 2 * time.Second, Told: channel, Webhook: hook})
	d.BreakMachines(true)
	const key = "prompts/x.jsonl"
	content := MixedPrompts(40) // some lines are no prompts
	id := d.Put(key, content)
	ofRun, ofPool := record.RunSubject(id), record.PoolSubject(Pool)
	d.awaitRecorded(ofPool, 1)
	d.awaitRecorded(ofRun, 1)
	Eventually(t, "both destinations refuse what they are told", func() bool {
		return channel.hasRefused() && hook.hasRefused()
	})
	d.BreakMachines(false)
	if !d.Control("resume", id) {
		t.Fatal("the run is not resumed")
	}
	WantSame(t, d.AwaitEnd(id), d.Local(key, content))
	d.awaitRecorded(ofRun, 2)

	channel.setClosed(false)
	hook.setClosed(false)
	for name, inbox := range map[string]*Inbox{"the cloud's channel": channel, "the webhook": hook} {
		Eventually(t, name+" has all events", func() bool {
			return len(inbox.Of(ofRun)) >= 2 && len(inbox.Of(ofPool)) >= 1
		})
		if got := inbox.Of(ofRun); !slices.Equal(got, []string{"run.paused", "run.completed"}) {
			t.Errorf("%s has of the run %v", name, got)
		}
		if got := inbox.Of(ofPool); got[0] != "pool.boot.failed" {
			t.Errorf("%s has of the pool %v", name, got)
		}
		if err := inbox.Problem(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	Eventually(t, "nothing is to be delivered any more", func() bool { return len(d.told(ofRun).Pending) == 0 })
	d.Check()
}

// told returns what people were told about a subject.
func (d *Fixture) told(subject record.NotificationSubject) (n record.Notifications) {
	d.t.Helper()
	if _, _, err := host.Load(d.t.Context(), d.Stores().Ports.Docs, record.NotifyKey(subject), &n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// awaitRecorded waits until there have been that many events about a subject.
func (d *Fixture) awaitRecorded(subject record.NotificationSubject, events uint64) {
	d.t.Helper()
	Eventually(d.t, fmt.Sprintf("%d events about %s are recorded", events, subject),
		func() bool { return d.told(subject).Sequence >= events })
}
