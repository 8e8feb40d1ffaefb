package notify_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/events"
	"rollout/functions/notify"
	"rollout/shared/core/identity"
	"rollout/shared/core/notification"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// faultyDocs loses writes and the replies of writes, as drawn.
type faultyDocs struct {
	document.Store
	mu    sync.Mutex
	fault func() int // 0: none, 1: before the write, 2: after it
}

func (d *faultyDocs) try(write func() (document.Revision, error)) (document.Revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost := fault.New(fault.Unavailable, "the store is away")
	switch d.fault() {
	case 1:
		return "", lost
	case 2:
		if _, err := write(); err != nil {
			return "", err
		}
		return "", lost
	}
	return write()
}

func (d *faultyDocs) Create(ctx context.Context, key string, v []byte) (document.Revision, error) {
	return d.try(func() (document.Revision, error) { return d.Store.Create(ctx, key, v) })
}

func (d *faultyDocs) Replace(ctx context.Context, key string, v []byte,
	r document.Revision) (document.Revision, error) {
	return d.try(func() (document.Revision, error) { return d.Store.Replace(ctx, key, v, r) })
}

func (d *faultyDocs) Delete(ctx context.Context, key string, r document.Revision) error {
	_, err := d.try(func() (document.Revision, error) { return "", d.Store.Delete(ctx, key, r) })
	return err
}

// faultyReceiver takes events, or does not, and loses its replies.
type faultyReceiver struct {
	name  string
	fault func() int // 0: none, 1: before it takes the event, 2: after
	mu    sync.Mutex
	last  map[string]string // by subject, the sequence of the newest event
	body  map[string]string // by id
	fail  func(format string, args ...any)
}

func (r *faultyReceiver) Name() string { return r.name }

func (r *faultyReceiver) Deliver(_ context.Context, event []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := r.fault()
	if lost != 1 {
		e, _, err := events.Decode(event)
		if err != nil {
			r.fail("%s got %s: %v", r.name, event, err)
		}
		if before, ok := r.body[e.ID]; !ok {
			if e.Sequence <= r.last[e.Subject] {
				r.fail("%s got %s behind %s of %s", r.name, e.Sequence, r.last[e.Subject], e.Subject)
			}
			r.body[e.ID], r.last[e.Subject] = string(event), e.Sequence
		} else if before != string(event) {
			r.fail("%s got two events with the id %s: %s and %s", r.name, e.ID, before, event)
		}
	}
	if lost > 0 {
		return fault.New(fault.Unavailable, "no answer")
	}
	return nil
}

// world is an installation whose stores and receivers fail as drawn, while faults is set.
type world struct {
	t         *rapid.T
	faults    bool
	clock     *handClock
	ports     host.Ports // faulty
	docs      document.Store
	receivers []*faultyReceiver
	*notify.Notifier
	runs   []record.Manifest
	states []run.State
	want   map[identity.RunID]int // events
}

func newWorld(t *rapid.T, runs int) *world {
	w := &world{t: t, faults: true, clock: &handClock{now: time.Unix(1_800_000_000, 0)}, want: map[identity.RunID]int{}}
	w.ports = hosttest.With(w.clock)
	w.docs = w.ports.Docs
	w.ports.Docs = &faultyDocs{Store: w.docs, fault: w.draw("store")}
	for _, name := range []string{"a", "b"} {
		w.receivers = append(w.receivers, &faultyReceiver{name: name, fault: w.draw(name), last: map[string]string{},
			body: map[string]string{}, fail: t.Fatalf})
	}
	for n := range runs {
		m := inputtest.Manifest(1)
		m.Run = runID(n)
		s := run.New(m.Run)
		s.Phase = run.Running
		w.runs, w.states = append(w.runs, m), append(w.states, s)
		w.save(record.ManifestKey(m.Run), m)
	}
	w.restart()
	return w
}

// draw returns a function that draws the next fault. Passes deliver several runs at once.
func (w *world) draw(label string) func() int {
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(w.t, label), 0))
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		if !w.faults {
			return 0
		}
		return []int{0, 0, 0, 1, 2}[dice.IntN(5)]
	}
}

func (w *world) save(key string, v any) {
	_, err := host.Update(context.Background(), w.docs, key, func(any, bool) (any, bool, error) { return v, true, nil })
	w.check(err)
}

func (w *world) check(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// restart replaces the notifier, as a new process does.
func (w *world) restart() {
	var to []notify.Destination
	for _, r := range w.receivers {
		to = append(to, r)
	}
	w.Notifier = notify.New(w.ports, notify.Options{Source: "rollout/local", Destinations: to,
		Timeout: time.Minute})
}

// look records what there is to tell, as a scan of reclaim does.
func (w *world) look() error {
	var open []run.State
	var ended []record.Manifest
	for i, s := range w.states {
		if s.Phase.Ended() {
			ended = append(ended, w.runs[i])
		} else {
			open = append(open, s)
		}
	}
	return errors.Join(w.Open(context.Background(), open), w.Ended(context.Background(), ended))
}

// lookWell looks without faults: what is over before any scan has seen it is not told.
func (w *world) lookWell() {
	before := w.faults
	w.faults = false
	w.check(w.look())
	w.faults = before
}

// act performs one drawn action.
func (w *world) act() {
	s := &w.states[rapid.IntRange(0, len(w.states)-1).Draw(w.t, "run")]
	acts := []string{"pause", "resume", "end", "look", "deliver", "deliver", "wait", "restart"}
	switch rapid.SampledFrom(acts).Draw(w.t, "act") {
	case "pause":
		if s.Phase == run.Running {
			w.clock.set(w.clock.Now().Add(time.Second))
			s.Phase, s.StopRequestedAt = run.Paused, w.clock.Now()
			w.want[s.Run]++
		}
	case "resume":
		if s.Phase == run.Paused {
			w.lookWell()
			s.Phase = run.Running
		}
	case "end":
		if !s.Phase.Ended() {
			w.lookWell()
			s.Phase, s.EndedAt = run.Completed, w.clock.Now()
			w.save(record.CoordinatorKey(s.Run), *s)
			w.want[s.Run]++
		}
	case "look":
		_ = w.look() // an error is met again by the next one
	case "deliver":
		_, _ = w.Deliver(context.Background())
	case "wait":
		w.clock.set(w.clock.Now().Add(time.Duration(rapid.IntRange(1, 3600).Draw(w.t, "seconds")) * time.Second))
	case "restart":
		w.restart()
	}
}

// finish delivers all that is pending.
func (w *world) finish() {
	w.faults = false
	w.check(w.look())
	for range 1000 {
		next, err := w.Deliver(context.Background())
		w.check(err)
		if next.IsZero() {
			return
		}
		w.clock.set(next)
	}
	w.t.Fatal("events are pending after 1000 passes")
}

// TestNothingIsLostUnderFaults lets runs pause and end, while writes and replies of the store
// and of two receivers are lost, and processes start anew. However that goes, each receiver has
// each event at last, those of a run in order, one id for each.
func TestNothingIsLostUnderFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3)
		for range rapid.IntRange(1, 25).Draw(t, "acts") {
			w.act()
		}
		w.finish()
		all := 0
		for id, want := range w.want {
			all += want
			for _, r := range w.receivers {
				if got := r.last[string(id)]; got != events.FormatSequence(uint64(want)) {
					t.Fatalf("%s has run %s up to %s, want %d", r.name, id, got, want)
				}
			}
		}
		for _, r := range w.receivers {
			if len(r.body) != all {
				t.Fatalf("%s has %d events, want %d", r.name, len(r.body), all)
			}
		}
		left, err := w.docs.List(context.Background(), record.OutboxPrefix, "", 1)
		if err != nil || len(left) > 0 {
			t.Fatalf("the outbox has %v, %v", left, err)
		}
	})
}

// small is the subject of the events of tell.
var small = record.PoolSubject("small")

// tell records the kth event about the pool small. Each problem begins after the one before is
// over.
func tell(t *testing.T, n *notify.Notifier, k int) {
	t.Helper()
	at := time.Unix(1_800_000_000, 0).Add(time.Duration(k) * 24 * time.Hour)
	if err := n.Pools(t.Context(), []notify.PoolReport{{Pool: "small",
		Problem: notification.Problem{Kind: notification.BootFailed, At: at, Reason: "no model"}}}); err != nil {
		t.Error(err)
	}
}

// recordsBeforeDelete records an event just before an entry of the outbox is deleted.
type recordsBeforeDelete struct {
	document.Store
	record func()
}

func (d *recordsBeforeDelete) Delete(ctx context.Context, key string, r document.Revision) error {
	if record := d.record; record != nil {
		d.record = nil
		record()
	}
	return d.Store.Delete(ctx, key, r)
}

func TestAnEventThatIsRecordedWhileTheOutboxIsClearedIsDelivered(t *testing.T) {
	t.Parallel()
	r := &faultyReceiver{name: "webhook", fault: func() int { return 0 }, last: map[string]string{},
		body: map[string]string{}, fail: t.Errorf}
	p := hosttest.New()
	docs := &recordsBeforeDelete{Store: p.Docs}
	p.Docs = docs
	n := notify.New(p, notify.Options{Source: "rollout/local", Destinations: []notify.Destination{r},
		Timeout: time.Minute})
	tell(t, n, 1)
	docs.record = func() { tell(t, n, 2) }
	for range 2 {
		if _, err := n.Deliver(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.last[string(small)]; got != events.FormatSequence(2) {
		t.Errorf("the newest event that arrived is %s", got)
	}
}

func TestTooManyEventsLeaveTheOldestOut(t *testing.T) {
	t.Parallel()
	r := &faultyReceiver{name: "webhook", fault: func() int { return 0 }, last: map[string]string{},
		body: map[string]string{}, fail: t.Errorf}
	clock := &handClock{now: time.Unix(1_800_000_000, 0)}
	p := hosttest.With(clock)
	n := notify.New(p, notify.Options{Source: "rollout/local", Destinations: []notify.Destination{r},
		Timeout: time.Minute})
	const all = record.MaxPending + 5
	for k := range all {
		tell(t, n, k)
	}
	d := hosttest.Load[record.Notifications](t, p, record.NotifyKey(small))
	if len(d.Pending) != record.MaxPending || d.Dropped != 5 {
		t.Errorf("%d events are pending, %d were left out", len(d.Pending), d.Dropped)
	}
	if _, err := n.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.body) != record.MaxPending || r.last[string(small)] != events.FormatSequence(all) {
		t.Errorf("%d events arrived, the last is %s", len(r.body), r.last[string(small)])
	}
}
