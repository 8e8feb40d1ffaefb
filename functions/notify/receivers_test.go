package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/notify"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/secret"
	"rollout/shared/webhook"
)

// handClock is a clock that tests move.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.now) {
		c.now = at
	}
}

const key = "the key of the signatures"

// receiver is a real HTTP server that keeps what it has taken.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu    sync.Mutex
	taken []events.Envelope // in the order of arrival, repetitions included
	calls int
	// answer decides what becomes of a call, by its number from 0, before or after the event
	// is taken.
	answer func(call int, w http.ResponseWriter, take func())
}

func newReceiver(t *testing.T, answer func(call int, w http.ResponseWriter, take func())) *receiver {
	t.Helper()
	r := &receiver{t: t, answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP checks the signature as a receiver should, and takes the event.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil { // the sender is gone
		return
	}
	id := req.Header.Get(webhook.IDHeader)
	seconds, err := strconv.ParseInt(req.Header.Get(webhook.TimestampHeader), 10, 64)
	signature := webhook.Sign([]byte(key), id, time.Unix(seconds, 0), body)
	e, _, decodeErr := events.Decode(body)
	if err != nil || decodeErr != nil || signature != req.Header.Get(webhook.SignatureHeader) || e.ID != id {
		r.t.Errorf("the receiver got %q signed as %q: %v, %v", body, req.Header.Get(webhook.SignatureHeader), err, decodeErr)
	}
	r.mu.Lock()
	call := r.calls
	r.calls++
	r.mu.Unlock()
	r.answer(call, w, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taken = append(r.taken, e)
	})
}

// first returns what the receiver has taken of a run, without repetitions, as the last part of
// the types.
func (r *receiver) first(id identity.RunID) (kinds []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	last := ""
	for _, e := range r.taken {
		if e.Subject != string(id) || seen[e.ID] {
			continue
		}
		seen[e.ID] = true
		if e.Sequence <= last {
			r.t.Errorf("run %s: the event %s came behind %s", id, e.Sequence, last)
		}
		last = e.Sequence
		kinds = append(kinds, strings.TrimSuffix(strings.TrimPrefix(string(e.Type), "rollout.run."), ".v1"))
	}
	return kinds
}

// lose ends the connection without an answer.
func lose(t *testing.T, w http.ResponseWriter) {
	t.Helper()
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_ = c.Close()
}

// installation has runs, and a notifier that posts to a receiver.
type installation struct {
	host.Ports
	*notify.Notifier
	t     *testing.T
	clock *handClock
}

func newInstallation(t *testing.T, address string, timeout time.Duration) *installation {
	t.Helper()
	clock := &handClock{now: time.Now()}
	p := hosttest.With(clock)
	i := &installation{Ports: p, t: t, clock: clock}
	i.restart(address, timeout)
	return i
}

// restart replaces the notifier, as a new process does.
func (i *installation) restart(address string, timeout time.Duration) {
	w := webhook.New(webhook.Options{Address: address, Timeout: timeout, Clock: i.Ports.Clock,
		Secret: func(context.Context) (secret.Value, error) { return secret.NewValue(key), nil }})
	i.Notifier = notify.New(i.Ports, notify.Options{Source: "rollout/local", Timeout: timeout,
		Destinations: []notify.Destination{w}})
}

// runID returns the id of the nth run of a test.
func runID(n int) identity.RunID {
	return identity.RunID(fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K8C%02d", n))
}

// submit adds a run, and returns its manifest.
func (i *installation) submit(n int) record.Manifest {
	m := inputtest.Manifest(1)
	m.Run, m.Name = runID(n), fmt.Sprintf("run %d", n)
	hosttest.Save(i.t, i.Ports, record.ManifestKey(m.Run), m)
	return m
}

// pause records that runs are paused.
func (i *installation) pause(ids ...identity.RunID) {
	i.t.Helper()
	var states []run.State
	for _, id := range ids {
		s := run.New(id)
		s.Phase, s.Message, s.StopRequestedAt = run.Paused, "the input is gone", i.clock.Now()
		states = append(states, s)
	}
	i.check(i.Open(i.t.Context(), states))
}

// end records that a run has ended.
func (i *installation) end(m record.Manifest) {
	i.t.Helper()
	sum := record.Summary{Run: m.Run, Phase: string(run.Completed), Items: 3, Completed: 3, EndedAt: i.clock.Now()}
	b, err := json.Marshal(sum)
	i.check(err)
	hosttest.Put(i.t, i.Ports, record.OutputKey(m.Run, record.SummaryFile), string(b))
	i.check(i.Ended(i.t.Context(), []record.Manifest{m}))
}

func (i *installation) check(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// deliver makes passes until nothing is pending, and moves the clock to when events are due.
func (i *installation) deliver() {
	i.t.Helper()
	for range 1000 {
		next, err := i.Deliver(i.t.Context())
		i.check(err)
		if next.IsZero() {
			return
		}
		i.clock.set(next)
	}
	i.t.Fatal("events are pending after 1000 passes")
}

const longEnough = time.Minute // no attempt in these tests takes so long

func TestEventsOfARunArriveInOrder(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(_ int, _ http.ResponseWriter, take func()) { take() })
	i := newInstallation(t, r.URL, longEnough)
	a, b := i.submit(1), i.submit(2)
	i.pause(a.Run)
	i.clock.set(i.clock.Now().Add(time.Second))
	i.pause(a.Run, b.Run)
	i.end(a)
	i.deliver()
	if got := r.first(a.Run); !slices.Equal(got, []string{"paused", "paused", "completed"}) {
		t.Errorf("the first run: %v", got)
	}
	if got := r.first(b.Run); !slices.Equal(got, []string{"paused"}) {
		t.Errorf("the second run: %v", got)
	}
	if len(r.taken) != 4 {
		t.Errorf("%d events arrived, want 4 without repetitions", len(r.taken))
	}
}

func TestADeadReceiverGetsTheEventsLater(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(_ int, _ http.ResponseWriter, take func()) { take() })
	address := r.Listener.Addr().String()
	r.Close()
	i := newInstallation(t, "http://"+address, longEnough)
	m := i.submit(1)
	i.pause(m.Run)
	i.end(m)
	next, err := i.Deliver(t.Context())
	if err != nil || next.IsZero() {
		t.Fatalf("the next attempt is at %s, %v", next, err)
	}
	d := hosttest.Load[record.Notifications](t, i.Ports, record.NotifyKey(record.RunSubject(m.Run)))
	if got := d.Deliveries["webhook"]; got.Attempts != 1 || got.Problem == "" || len(d.Pending) != 2 {
		t.Errorf("after the failure: %+v", d)
	}

	l, err := net.Listen("tcp", address) // the receiver is back
	if err != nil {                      // another program took its port
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: r}
	go func() { _ = back.Serve(l) }()
	defer back.Close()
	i.restart("http://"+l.Addr().String(), longEnough) // and the installation was restarted
	i.deliver()
	if got := r.first(m.Run); !slices.Equal(got, []string{"paused", "completed"}) {
		t.Errorf("arrived: %v", got)
	}
}

func TestAReceiverThatLosesItsRepliesGetsEventsAgain(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(call int, w http.ResponseWriter, take func()) {
		take()
		if call%2 == 0 {
			lose(t, w)
		}
	})
	i := newInstallation(t, r.URL, longEnough)
	var all []record.Manifest
	for n := range 5 {
		m := i.submit(n)
		all = append(all, m)
		i.pause(m.Run)
		i.end(m)
	}
	i.deliver()
	bodies := map[string]events.Envelope{}
	for _, e := range r.taken {
		if before, ok := bodies[e.ID]; ok && string(before.Data) != string(e.Data) {
			t.Errorf("the event %s came with other bytes: %s and %s", e.ID, before.Data, e.Data)
		}
		bodies[e.ID] = e
	}
	if len(bodies) != 10 || len(r.taken) <= 10 {
		t.Errorf("%d events arrived %d times", len(bodies), len(r.taken))
	}
	for _, m := range all {
		if got := r.first(m.Run); !slices.Equal(got, []string{"paused", "completed"}) {
			t.Errorf("run %s: %v", m.Run, got)
		}
	}
}

func TestASlowReceiverIsAskedAgain(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newReceiver(t, func(call int, w http.ResponseWriter, take func()) {
		if call == 0 {
			<-release
		}
		take()
	})
	defer func() {
		select {
		case <-release:
		default:
			close(release)
		}
	}()
	i := newInstallation(t, r.URL, 100*time.Millisecond)
	m := i.submit(1)
	i.end(m)
	if _, err := i.Deliver(t.Context()); err != nil { // ends although the receiver does not answer
		t.Fatal(err)
	}
	d := hosttest.Load[record.Notifications](t, i.Ports, record.NotifyKey(record.RunSubject(m.Run)))
	if len(d.Pending) != 1 || d.Deliveries["webhook"].Attempts != 1 {
		t.Fatalf("after a call without an answer: %+v", d)
	}
	close(release)
	i.restart(r.URL, longEnough)
	i.deliver()
	if got := r.first(m.Run); !slices.Equal(got, []string{"completed"}) {
		t.Errorf("arrived: %v", got)
	}
}

func TestADeadReceiverOfOneRunIsNotAskedForEveryRun(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(_ int, w http.ResponseWriter, _ func()) { w.WriteHeader(http.StatusServiceUnavailable) })
	i := newInstallation(t, r.URL, longEnough)
	for n := range 40 {
		i.end(i.submit(n))
	}
	if _, err := i.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.calls > 8 {
		t.Errorf("one pass called the failing receiver %d times", r.calls)
	}
}

func TestAnEventThatIsRefusedForGoodIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(call int, w http.ResponseWriter, take func()) {
		if call == 0 {
			w.WriteHeader(http.StatusGone)
			return
		}
		take()
	})
	i := newInstallation(t, r.URL, longEnough)
	m := i.submit(1)
	i.pause(m.Run)
	i.end(m)
	i.deliver()
	d := hosttest.Load[record.Notifications](t, i.Ports, record.NotifyKey(record.RunSubject(m.Run)))
	if got := d.Deliveries["webhook"]; got.GivenUp != 1 || !strings.Contains(got.Problem, "410") {
		t.Errorf("the delivery is %+v", got)
	}
	if got := r.first(m.Run); !slices.Equal(got, []string{"completed"}) {
		t.Errorf("arrived: %v", got)
	}
}

func TestAProcessThatIsKilledWhileItSendsDelaysTheEventAlone(t *testing.T) {
	t.Parallel()
	killed, answered := make(chan struct{}), make(chan struct{})
	r := newReceiver(t, func(call int, _ http.ResponseWriter, take func()) {
		take()
		if call == 0 {
			close(killed)
			<-answered
		}
	})
	i := newInstallation(t, r.URL, longEnough)
	m := i.submit(1)
	i.end(m)
	dying, kill := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = i.Deliver(dying)
	}()
	<-killed
	// Another process finds the claim, and leaves the event alone until it lapses.
	other := *i
	other.restart(r.URL, longEnough)
	next, err := other.Deliver(t.Context())
	if err != nil || !next.After(i.clock.Now()) || r.calls != 1 {
		t.Errorf("while the event is being sent: next at %s, %d calls, %v", next, r.calls, err)
	}
	kill()
	close(answered)
	<-gone
	other.deliver()
	if got := r.first(m.Run); !slices.Equal(got, []string{"completed"}) {
		t.Errorf("arrived: %v", got)
	}
}
