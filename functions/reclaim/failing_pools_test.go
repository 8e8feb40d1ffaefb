package reclaim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// word saves the last word of a machine, that old.
func (d fixture) word(n int, age time.Duration) {
	at := time.Now().Add(-age)
	worker := fmt.Sprintf("w%d", n)
	d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "default", State: health.Gone, At: at, DueAt: at, Instance: fmt.Sprintf("i-%d", n), FailureReason: "no engine"})
}

// works saves the beat of a worker that has answered so many items.
func (d fixture) works(instance string, rows int64, age time.Duration) {
	at := time.Now().Add(-age)
	d.save(record.HeartbeatKey("on-"+instance), health.Heartbeat{Schema: 1, Worker: "on-" + instance, Pool: "default", State: health.Ready, At: at, DueAt: at.Add(20 * time.Second),
		Instance: instance, Load: health.Load{Rows: rows}})
}

// Else a model that nothing serves would have a machine come up after the other,
// each paid for, as long as the run is open.
func TestMachinesThatGiveUpInARowPauseTheRunsOfTheirPool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given  func(fixture)
		paused bool
		left   int // words
	}{
		"two":   {func(d fixture) { d.word(1, 80*time.Minute); d.word(2, 40*time.Minute) }, false, 2},
		"three": {func(d fixture) { d.word(1, 80*time.Minute); d.word(2, 40*time.Minute); d.word(3, 0) }, true, 0},
		"eight at once": {func(d fixture) {
			for n := range 8 {
				d.word(n, 0)
			}
		}, true, 0},
		"the third is late": {func(d fixture) { d.word(1, 20*time.Hour); d.word(2, 10*time.Hour); d.word(3, 0) }, true, 0},
		"while another works": {func(d fixture) {
			d.word(1, 80*time.Minute)
			d.word(2, 40*time.Minute)
			d.word(3, time.Minute)
			d.works("i-9", 7, 0)
		}, false, 0},
		"since one worked": {func(d fixture) {
			d.word(1, 80*time.Minute)
			d.word(2, 40*time.Minute)
			d.word(3, time.Minute)
			d.works("i-9", 7, 10*time.Minute)
		}, false, 1},
		"while another waits for its engine": {func(d fixture) {
			d.word(1, 80*time.Minute)
			d.word(2, 40*time.Minute)
			d.word(3, time.Minute)
			d.works("i-9", 0, 0)
		}, true, 0},
		"the last after having worked": {func(d fixture) {
			d.word(1, 80*time.Minute)
			d.word(2, 40*time.Minute)
			d.word(3, time.Minute)
			d.works("i-3", 7, 0)
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.waits(id, time.Now())
				d.since(id, 30*time.Hour)
				c.given(d)
				needed := 0
				if err := ScanOnce(t.Context(), d.Ports, cloud, func(string, scaling.Demand) { needed++ }); err != nil {
					t.Fatal(err)
				}
				paused := false
				for _, p := range d.received(host.CoordinateQueue) {
					if m, ok := p.(events.ModelMissing); ok {
						paused = true
						if m.Run != string(id) || !strings.Contains(m.Reason, "no engine") {
							t.Errorf("told %+v", m)
						}
					}
				}
				if paused != c.paused || (needed == 0) != c.paused || d.words() != c.left {
					t.Errorf("paused %v, asked for machines %d times, %d words left", paused, needed, d.words())
				}
			})
		})
	}
}

// Its cloud tells of a machine's end minutes after its last word: it must be
// known then as one that said something, and not for ever.
func TestAMachineWhoseLastWordWasHeardIsKnownForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.waits(id, time.Now())
		d.since(id, time.Hour)
		for n := range 3 {
			d.word(n, 0)
		}
		known := func() (n int) {
			if err := host.Each(t.Context(), d.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
				if b.State != health.Gone || b.Instance == "" {
					t.Errorf("%+v", b)
				}
				n++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if d.scan(); d.words() != 0 || known() != 3 {
			t.Errorf("%d words are left, of %d machines", d.words(), known())
		}
		time.Sleep(health.HeartbeatRetention + time.Minute)
		if err := New(d.Ports, cloud).Scan(t.Context()); err != nil || known() != 0 {
			t.Errorf("%d machines are remembered for ever", known())
		}
	})
}

// since says when the run was submitted.
func (d fixture) since(r identity.RunID, age time.Duration) {
	d.t.Helper()
	if _, err := host.Update(d.t.Context(), d.Docs, record.ManifestKey(r), func(m record.Manifest, _ bool) (record.Manifest, bool, error) {
		m.CreatedAt = time.Now().Add(-age)
		return m, true, nil
	}); err != nil {
		d.t.Fatal(err)
	}
}

func (d fixture) words() (n int) {
	d.t.Helper()
	if err := host.Each(d.t.Context(), d.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if b.FailureReason != "" {
			n++
		}
		return nil
	}); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// Who has seen to it and resumes the run, or submits another, begins anew.
func TestMachinesThatGaveUpBeforeARunSayNothingOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		for n := range 3 {
			d.word(n, time.Hour/2)
		}
		d.waits(id, time.Now())
		d.since(id, time.Minute)
		if said := d.scan(); len(said) != 0 {
			t.Errorf("a new run is told %v", said)
		}
		d.waits(id[:len(id)-1]+"A", time.Now(), func(s *run.State) { s.Phase = run.Paused })
		d.scan()
		if d.words() != 3 {
			t.Error("what a run may still need is forgotten")
		}
		doc, err := d.Docs.Get(t.Context(), record.CoordinatorKey(id))
		if err == nil {
			err = d.Docs.Delete(t.Context(), doc.Key, doc.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		d.scan()
		if d.words() != 0 {
			t.Error("the words of a pool without running runs are kept")
		}
	})
}

// The words stay until coordinate has them: a scan that could not tell tells
// the next time.
func TestNothingIsForgottenThatWasNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.waits(id, time.Now())
		d.since(id, time.Hour)
		for n := range 3 {
			d.word(n, 0)
		}
		deaf := d.Ports
		deaf.Queues = mute{deaf.Queues}
		if err := New(deaf, cloud).Scan(t.Context()); !fault.Is(err, fault.Unavailable) || d.words() != 3 {
			t.Errorf("%v, %d words", err, d.words())
		}
	})
}

// mute takes no message.
type mute struct{ queue.Queues }

func (mute) Send(context.Context, string, [][]byte, time.Duration) error {
	return fault.New(fault.Unavailable, "the queue is away")
}
