package reclaim

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

const id = inputtest.RunID

// fixture is a world in which a run waits for one dispatched shard.
type fixture struct {
	host.Ports
	*Reclaimer
	t   *testing.T
	log *bytes.Buffer
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	log := &bytes.Buffer{}
	p := hosttest.New()
	p.Log = slog.New(slog.NewTextHandler(log, nil))
	return fixture{p, New(p, host.Timings(config.DefaultDeployment().Health)), t, log}
}

func (d fixture) save(key string, v any) { d.t.Helper(); hosttest.Save(d.t, d.Ports, key, v) }

// noted notes a run as open, as submit did long ago.
func (d fixture) noted(r identity.RunID) {
	d.save(record.OpenRunKey(r), record.OpenRun{Schema: 1, Run: r, At: time.Now().Add(-10 * time.Minute)})
}

// waits saves a running run with shard 0 sent at that time, and its manifest.
func (d fixture) waits(r identity.RunID, sent time.Time, edit ...func(*run.State)) {
	m := inputtest.Manifest(1)
	m.Run = r
	d.save(record.ManifestKey(r), m)
	d.noted(r)
	s := run.New(r)
	s.Phase, s.Shards, s.Complete, s.NextShard, s.SavedAt = run.Running, 1, true, 1, time.Now()
	s.InFlight = schedule.InFlight{Chunks: []schedule.Chunk{{Range: interval.Range{Lo: 0, Hi: 1}, Generation: 0, SentAt: sent}}}
	for _, f := range edit {
		f(&s)
	}
	d.save(record.CoordinatorKey(r), s)
}

func (d fixture) beat(worker string, age time.Duration, state health.State, holds ...health.HeldShard) {
	at := time.Now().Add(-age)
	d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, State: state, At: at, DueAt: d.timings.Due(at), Holds: holds})
}

// scan scans once and returns what coordinate was sent.
func (d fixture) scan() []events.Payload {
	d.t.Helper()
	if err := d.Scan(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	return d.received(host.CoordinateQueue)
}

func (d fixture) received(q string) (out []events.Payload) {
	ms, err := d.Ports.Queues.Receive(d.t.Context(), q, 1000, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range ms {
		_, p, _ := events.Decode(m.Body)
		out = append(out, p)
		_ = d.Ports.Queues.Ack(d.t.Context(), q, []string{m.Receipt})
	}
	return out
}

// TestVerdicts says what is reported of a dispatched shard.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	mine := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
	const young, old = time.Second, time.Minute // against a back-off of 5 s
	running := shard.Doc{State: shard.Running, Worker: "w1", Attempt: 1}
	alive := func(d fixture) { d.beat("w1", 0, health.Ready, mine) }
	dead := func(d fixture) { d.beat("w1", 2*time.Minute, health.Ready, mine) }
	gone := func(d fixture) { d.beat("w1", 0, health.Gone) }
	dies := func(d fixture) { d.beat("w1", 8*time.Second, health.Ready, mine) } // found dead for 2 s
	lives := func(d fixture) {                                                  // while another dies
		d.beat("w1", 0, health.Ready)
		d.beat("w2", 8*time.Second, health.Ready, health.HeldShard{Run: id, Shard: 7, Attempt: 1})
	}
	disowns := func(d fixture) { d.beat("w1", 0, health.Ready) }
	waits := func(d fixture) {
		_ = d.Ports.Send(d.t.Context(), host.WorkQueue("default"), events.Wakeup{Run: string(id)})
	}
	for name, c := range map[string]struct {
		doc   shard.Doc // zero is absent
		age   time.Duration
		given func(fixture)
		want  string // kind and reason of the report, "" for none
	}{
		"done long ago":                        {shard.Doc{State: shard.Done, Counts: shard.Counts{OK: 1}}, old, nil, "done"},
		"done just now":                        {shard.Doc{State: shard.Done}, young, nil, ""},
		"done just now by one who died":        {shard.Doc{State: shard.Done, Worker: "w1"}, young, dies, "done"},
		"done just now while another dies":     {shard.Doc{State: shard.Done, Worker: "w1"}, young, lives, ""},
		"held by one who just died":            {running, 3 * time.Second, dies, "lost holder_dead"},
		"sent again since its holder died":     {running, young, dies, ""},
		"held by a living worker":              {running, old, alive, ""},
		"held by a dead worker":                {running, old, dead, "lost holder_dead"},
		"held by a dead worker, sent just now": {running, young, dead, ""},
		"held by one who left":                 {running, old, gone, "lost holder_dead"},
		"held by nobody known":                 {running, old, nil, "lost holder_dead"},
		"disowned":                             {running, old, disowns, "lost disowned"},
		"unclaimed for long":                   {shard.Doc{}, old, nil, "lost unclaimed"},
		"released for long":                    {shard.Doc{State: shard.Pending, Attempt: 3}, old, nil, "lost unclaimed"},
		"unclaimed, sent just now":             {shard.Doc{}, young, nil, ""},
		"unclaimed, and the queue has work":    {shard.Doc{}, old, waits, ""},
		"unclaimed for too long to believe it": {shard.Doc{}, 6 * time.Minute, waits, "lost unclaimed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.waits(id, time.Now().Add(-c.age))
				if c.doc.State != "" {
					c.doc.Schema, c.doc.Run, c.doc.ClaimedAt = 1, id, time.Now().Add(-time.Hour)
					d.save(identity.ShardKey(id, 0), c.doc)
				}
				if c.given != nil {
					c.given(d)
				}
				said := d.scan()
				got := ""
				for _, p := range said {
					switch p := p.(type) {
					case events.ShardDone:
						got += "done"
					case events.ShardLost:
						got += "lost " + p.Reason
					default:
						got += "?"
					}
				}
				if got != c.want {
					t.Errorf("reported %q (%v), want %q", got, said, c.want)
				}
			})
		})
	}
}

func TestADeadWorkerIsReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.beat("w1", time.Minute, health.Ready)
		d.beat("w2", 0, health.Ready)
		d.beat("w3", time.Minute, health.Gone)
		other := fixture{d.Ports, New(d.Ports, d.timings), t, d.log} // in another process
		for range 3 {
			d.scan()
			other.scan()
		}
		if n := strings.Count(d.log.String(), events.ObserveWorkerFailed); n != 1 || !strings.Contains(d.log.String(), "worker=w1") {
			t.Errorf("%d reports:\n%s", n, d.log)
		}
		if m := hosttest.Load[record.WorkerMark](t, d.Ports, record.WorkerKey("w1")); m.Failed.IsZero() {
			t.Error("it is not marked")
		}
	})
}

func TestWorkersThatAreLongGoneAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.beat("w1", 2*time.Hour, health.Ready)
		d.beat("w2", 2*time.Hour, health.Gone)
		d.beat("w3", 50*time.Minute, health.Ready)
		d.save(record.WorkerKey("w1"), record.WorkerMark{Schema: 1, Failed: time.Now()})
		d.scan()
		var left []string
		for doc, err := range document.All(t.Context(), d.Docs, "") {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, doc.Key)
		}
		if want := []string{"beat/w3", "worker/w3"}; !slices.Equal(left, want) {
			t.Errorf("documents %v are left, want %v", left, want)
		}
	})
}

func TestNobodyIsJudgedAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.waits(id, time.Now())
		d.save(identity.ShardKey(id, 0), shard.Doc{Schema: 1, Run: id, State: shard.Running, Worker: "w1", Attempt: 1, ClaimedAt: time.Now()})
		d.beat("w1", 0, health.Ready, health.HeldShard{Run: id, Shard: 0, Attempt: 1})
		d.scan()
		<-time.After(time.Minute)
		if said := d.scan(); len(said) != 0 {
			t.Errorf("reported %v", said)
		}
		if strings.Contains(d.log.String(), events.ObserveWorkerFailed) {
			t.Error("the worker was reported")
		}
		for range 3 { // a living one may not have had its turn to renew its heartbeat
			<-time.After(250 * time.Millisecond)
			if said := d.scan(); len(said) != 0 {
				t.Errorf("within two heartbeats it reported %v", said)
			}
		}
		<-time.After(250 * time.Millisecond)
		if said := d.scan(); len(said) != 1 {
			t.Errorf("then it reported %v", said)
		}
	})
}

// The clock was set back by an hour: until then, times that were written before
// lie ahead. Who lives is told by whether he renews his heartbeat; what he held
// who does not is lost, also to those who ask the clock; nothing waits for the
// hour to pass.
func TestAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	const back = -time.Hour // the age of what was written before
	held := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
	for name, c := range map[string]struct {
		claimed bool
		renews  bool // its holder lives
		said    int  // reports
	}{
		"a living holder": {claimed: true, renews: true},
		"a dead holder":   {claimed: true, said: 1},
		"nobody has it":   {said: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.waits(id, time.Now().Add(-back))
				if c.claimed {
					d.save(identity.ShardKey(id, 0), shard.Doc{Schema: 1, Run: id, State: shard.Running, Worker: "w1", Attempt: 1, ClaimedAt: time.Now().Add(-back)})
					d.beat("w1", back, health.Ready, held)
				}
				var said []events.Payload
				for range 8 * 4 { // 8 s
					said = append(said, d.scan()...)
					if len(said) > 0 {
						break
					}
					<-time.After(250 * time.Millisecond)
					if c.renews {
						d.beat("w1", 0, health.Ready, held)
					}
				}
				if len(said) != c.said {
					t.Errorf("reported %v, want %d", said, c.said)
				}
				_, err := d.Docs.Get(t.Context(), record.HeartbeatKey("w1"))
				if there := err == nil; there != c.renews {
					t.Errorf("the holder has a heartbeat: %v, want %v", there, c.renews)
				}
			})
		})
	}
}

func TestASuspendIsToldByTheTwoClocks(t *testing.T) {
	t.Parallel()
	const failure = 5 * time.Second
	for name, c := range map[string]struct {
		mono, wall time.Duration
		want       bool
	}{
		"on time":                     {250 * time.Millisecond, 250 * time.Millisecond, false},
		"late, but awake":             {19 * time.Second, 19 * time.Second, false},
		"the clock was set a bit":     {250 * time.Millisecond, 2 * time.Second, false},
		"monotonic time stood":        {250 * time.Millisecond, time.Hour, true},
		"the wall clock was set back": {250 * time.Millisecond, -time.Hour, true},
		"both went on":                {time.Hour, time.Hour, true},
	} {
		if got := clocksDiverged(c.mono, c.wall, failure); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhenARunIsRung(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		s    run.State
		want string
	}{
		"running":                    {run.State{Phase: run.Running, Complete: true, SavedAt: now.Add(-time.Hour)}, ""},
		"pausing":                    {run.State{Phase: run.Pausing, Complete: true, SavedAt: now}, "stopping"},
		"ending":                     {run.State{Phase: run.Ending, Complete: true, SavedAt: now}, "stopping"},
		"paused":                     {run.State{Phase: run.Paused, SavedAt: now.Add(-time.Hour)}, ""},
		"finalizing":                 {run.State{Phase: run.Finalizing, Complete: true, SavedAt: now.Add(-time.Minute)}, ""},
		"finalizing for long":        {run.State{Phase: run.Finalizing, Complete: true, SavedAt: now.Add(-3 * time.Minute)}, "finalize is outstanding"},
		"planning":                   {run.State{Phase: run.Planning, SavedAt: now.Add(-time.Minute)}, ""},
		"finalizing again":           {run.State{Phase: run.Finalizing, Complete: true, SavedAt: now.Add(-3 * time.Minute), Retries: 1, Effects: run.Effects{{Kind: run.Finalize}}}, ""},
		"finalizing again for long":  {run.State{Phase: run.Finalizing, Complete: true, SavedAt: now.Add(-5 * time.Minute), Retries: 1}, "finalize is outstanding"},
		"finalizing in vain":         {run.State{Phase: run.Finalizing, Complete: true, SavedAt: now.Add(-16 * time.Minute), Retries: 1000}, "finalize is outstanding"},
		"planning again":             {run.State{Phase: run.Planning, SavedAt: now.Add(-7 * time.Minute), Retries: 2}, ""},
		"planning for long":          {run.State{Phase: run.Planning, SavedAt: now.Add(-3 * time.Minute)}, "plan is outstanding"},
		"effects for long":           {run.State{Phase: run.Running, Complete: true, SavedAt: now.Add(-3 * time.Minute), Effects: run.Effects{{Kind: run.Replan}}}, "effects are outstanding"},
		"at its deadline":            {run.State{Phase: run.Running, Complete: true, SavedAt: now, Deadline: now}, "the deadline is over"},
		"paused at its deadline":     {run.State{Phase: run.Paused, Complete: true, SavedAt: now, Deadline: now}, "the deadline is over"},
		"finalizing at its deadline": {run.State{Phase: run.Finalizing, Complete: true, SavedAt: now, Deadline: now}, ""},
	} {
		if got := due(c.s, now); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What became of its submission nobody knows: each time it is asked for the plan
// the next takes longer, as planning may.
func TestARunThatCoordinateNeverHeardOfIsPlanned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.save(record.ManifestKey(id), inputtest.Manifest(1))
		d.save(record.OpenRunKey(id), record.OpenRun{Schema: 1, Run: id, At: time.Now()})
		began, asked := time.Now(), []time.Duration{}
		for time.Since(began) < 50*time.Minute {
			d.scan()
			for _, p := range d.received(host.TaskQueue) {
				if p != (events.RunSubmitted{Run: string(id)}) {
					t.Errorf("asked for %v", p)
				}
				asked = append(asked, time.Since(began).Truncate(time.Minute))
			}
			<-time.After(10 * time.Second) // no suspend
		}
		if want := []time.Duration{2 * time.Minute, 4 * time.Minute, 9 * time.Minute, 18 * time.Minute, 33 * time.Minute, 48 * time.Minute}; !slices.Equal(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
	})
}

// A run is noted as open until it has ended, or turns out to be none.
func TestOnlyOpenRunsAreNoted(t *testing.T) {
	t.Parallel()
	ended := func(p run.Phase) func(fixture) {
		return func(d fixture) { d.waits(id, time.Now(), func(s *run.State) { s.Phase = p }) }
	}
	for name, c := range map[string]struct {
		given func(fixture)
		noted bool
	}{
		"completed":   {ended(run.Completed), false},
		"stopped":     {ended(run.Stopped), false},
		"paused":      {ended(run.Paused), true},
		"interrupted": {ended(run.Interrupted), true},
		"finalizing":  {ended(run.Finalizing), true},
		"refused meanwhile": {func(d fixture) {
			d.noted(id)
			d.save(record.ManifestKey(id), record.Manifest{Schema: 1, Run: id, Refused: "no pool"})
		}, false},
		"being submitted": {func(d fixture) { d.noted(id) }, true},
		"submitted an hour ago, to nothing": {func(d fixture) {
			d.save(record.OpenRunKey(id), record.OpenRun{Schema: 1, Run: id, At: time.Now().Add(-retainFor - 1)})
		}, false},
		"of another version": {func(d fixture) { d.save(record.OpenRunKey(id), record.OpenRun{Schema: 99, Run: id}) }, true},
		"no run":             {func(d fixture) { d.save("open/nonsense", record.OpenRun{Schema: 1}) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t)
			c.given(d)
			_ = d.Scan(t.Context()) // it may say that it can't read all
			left := 0
			for _, err := range document.All(t.Context(), d.Docs, record.OpenRunPrefix) {
				if left++; err != nil {
					t.Error(err)
				}
			}
			if (left == 1) != c.noted {
				t.Errorf("%s: %d notes", name, left)
			}
		})
	}
}

// A submission that goes on while its note is taken for a leftover keeps it.
func TestANoteThatIsWrittenAnewStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		old := record.OpenRun{Schema: 1, Run: id, At: time.Now().Add(-2 * retainFor)}
		d.save(record.OpenRunKey(id), old)
		read, err := d.Docs.Get(t.Context(), record.OpenRunKey(id))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Docs.Replace(t.Context(), read.Key, record.Encode(record.OpenRun{Schema: 1, Run: id, At: time.Now()}), read.Revision); err != nil {
			t.Fatal(err)
		}
		if err := d.forgetOpen(t.Context(), read); err != nil {
			t.Errorf("%v", err)
		}
		hosttest.Load[record.OpenRun](t, d.Ports, record.OpenRunKey(id))
	})
}

func TestATroubledRunHidesNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		const second identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVZ"
		d.waits(id, time.Now().Add(-time.Minute))
		d.waits(second, time.Now().Add(-time.Minute))
		if _, err := d.Ports.Docs.Create(t.Context(), identity.ShardKey(id, 0), []byte("{")); err != nil {
			t.Fatal(err)
		}
		if err := d.Scan(t.Context()); err == nil || !strings.Contains(err.Error(), string(id)) {
			t.Errorf("the trouble is told as %v", err)
		}
		said := d.received(host.CoordinateQueue)
		if len(said) != 1 || said[0].(events.ShardLost).Run != string(second) {
			t.Errorf("reported %v", said)
		}
	})
}

func TestAtTheStartEveryOpenRunIsRung(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.waits(id, time.Now())
	d.waits("01JD2ZQ4T5W0M1X9YB7R3K8CVX", time.Now(), func(s *run.State) { s.Complete, s.Phase = false, run.Paused })
	d.waits("01JD2ZQ4T5W0M1X9YB7R3K8CVZ", time.Now(), func(s *run.State) { s.Phase = run.Completed })
	for _, key := range []string{record.OpenRunKey(id), record.OpenRunKey("01JD2ZQ4T5W0M1X9YB7R3K8CVZ")} { // an earlier version noted none
		doc, err := d.Docs.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Docs.Delete(t.Context(), key, doc.Revision); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.WakeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said := d.received(host.CoordinateQueue); len(said) != 2 {
		t.Errorf("rung %v", said)
	}
	if said := d.received(host.TaskQueue); len(said) != 1 {
		t.Errorf("planned %v", said)
	}
	if _, err := d.Docs.Get(t.Context(), record.OpenRunKey("01JD2ZQ4T5W0M1X9YB7R3K8CVZ")); !fault.Is(err, fault.NotFound) {
		t.Errorf("the ended run is noted as open: %v", err)
	}
}
