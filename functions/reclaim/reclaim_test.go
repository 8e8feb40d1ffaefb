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

// fixture is a reclaimer over empty stores, and its log.
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

// addOpen adds a run to the index of open runs, as submit did some time ago.
func (d fixture) addOpen(r identity.RunID) {
	d.save(record.OpenRunKey(r), record.OpenRun{Schema: 1, Run: r, At: time.Now().Add(-10 * time.Minute)})
}

// running saves a running run whose shard 0 was sent at that time.
func (d fixture) running(r identity.RunID, sent time.Time, edit ...func(*run.State)) {
	m := inputtest.Manifest(1)
	m.Run = r
	d.save(record.ManifestKey(r), m)
	d.addOpen(r)
	s := run.New(r)
	s.Phase, s.Shards, s.Complete, s.NextShard, s.SavedAt = run.Running, 1, true, 1, time.Now()
	chunk := schedule.Chunk{Range: interval.Range{Lo: 0, Hi: 1}, Generation: 0, SentAt: sent}
	s.InFlight = schedule.InFlight{Chunks: []schedule.Chunk{chunk}}
	for _, f := range edit {
		f(&s)
	}
	d.save(record.CoordinatorKey(r), s)
}

// beat saves a heartbeat of that age.
func (d fixture) beat(worker string, age time.Duration, state health.State, holds ...health.HeldShard) {
	at := time.Now().Add(-age)
	d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, State: state,
		At: at, DueAt: d.timings.Due(at), Holds: holds})
}

// holder saves the document of shard 0, which worker w1 claimed that long ago.
func (d fixture) holder(age time.Duration) {
	d.save(identity.ShardKey(id, 0), shard.Doc{Schema: 1, Run: id, State: shard.Running, Worker: "w1", Attempt: 1,
		ClaimedAt: time.Now().Add(-age)})
}

// scan scans once and returns the events for coordinate.
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

func TestScanReportsDispatchedShards(t *testing.T) {
	t.Parallel()
	mine := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
	const young, old = time.Second, time.Minute // below and above the backoff of 5 s
	running := shard.Doc{State: shard.Running, Worker: "w1", Attempt: 1}
	done := shard.Doc{State: shard.Done, Worker: "w1"}
	alive := func(d fixture) { d.beat("w1", 0, health.Ready, mine) }
	dead := func(d fixture) { d.beat("w1", 2*time.Minute, health.Ready, mine) }
	gone := func(d fixture) { d.beat("w1", 0, health.Gone) }
	justDied := func(d fixture) { d.beat("w1", 8*time.Second, health.Ready, mine) } // dead for 2 s
	otherJustDied := func(d fixture) {
		d.beat("w1", 0, health.Ready)
		d.beat("w2", 8*time.Second, health.Ready, health.HeldShard{Run: id, Shard: 7, Attempt: 1})
	}
	notListed := func(d fixture) { d.beat("w1", 0, health.Ready) }
	queued := func(d fixture) {
		_ = d.Ports.Send(d.t.Context(), host.WorkQueue("default"), events.Wakeup{Run: string(id)})
	}
	for name, c := range map[string]struct {
		doc   shard.Doc // the zero value is an absent document
		age   time.Duration
		given func(fixture)
		want  string // kind and reason of the report, "" for none
	}{
		"done, sent long ago":                  {shard.Doc{State: shard.Done, Counts: shard.Counts{OK: 1}}, old, nil, "done"},
		"done, sent just now":                  {shard.Doc{State: shard.Done}, young, nil, ""},
		"done by a worker that just died":      {done, young, justDied, "done"},
		"done, and another worker just died":   {done, young, otherJustDied, ""},
		"holder just died":                     {running, 3 * time.Second, justDied, "lost holder_dead"},
		"sent again after its holder died":     {running, young, justDied, ""},
		"holder is alive":                      {running, old, alive, ""},
		"holder is dead":                       {running, old, dead, "lost holder_dead"},
		"holder is dead, sent just now":        {running, young, dead, ""},
		"holder has left":                      {running, old, gone, "lost holder_dead"},
		"holder has no heartbeat":              {running, old, nil, "lost holder_dead"},
		"holder does not list it":              {running, old, notListed, "lost disowned"},
		"unclaimed, sent long ago":             {shard.Doc{}, old, nil, "lost unclaimed"},
		"released, sent long ago":              {shard.Doc{State: shard.Pending, Attempt: 3}, old, nil, "lost unclaimed"},
		"unclaimed, sent just now":             {shard.Doc{}, young, nil, ""},
		"unclaimed, queue has messages":        {shard.Doc{}, old, queued, ""},
		"unclaimed for longer than queues say": {shard.Doc{}, 6 * time.Minute, queued, "lost unclaimed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.running(id, time.Now().Add(-c.age))
				if c.doc.State != "" {
					c.doc.Schema, c.doc.Run, c.doc.ClaimedAt = 1, id, time.Now().Add(-time.Hour)
					d.save(identity.ShardKey(id, 0), c.doc)
				}
				if c.given != nil {
					c.given(d)
				}
				sent := d.scan()
				got := ""
				for _, p := range sent {
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
					t.Errorf("reported %q (%v), want %q", got, sent, c.want)
				}
			})
		})
	}
}

func TestDeadWorkerIsMarkedAndObservedOnce(t *testing.T) {
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
		n := strings.Count(d.log.String(), events.ObserveWorkerFailed)
		if n != 1 || !strings.Contains(d.log.String(), "worker=w1") {
			t.Errorf("%d observations:\n%s", n, d.log)
		}
		if m := hosttest.Load[record.WorkerMark](t, d.Ports, record.WorkerKey("w1")); m.Failed.IsZero() {
			t.Error("it is not marked")
		}
	})
}

func TestOldHeartbeatsAreDeleted(t *testing.T) {
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

func TestNoWorkerIsJudgedRightAfterASuspend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now())
		d.holder(0)
		d.beat("w1", 0, health.Ready, health.HeldShard{Run: id, Shard: 0, Attempt: 1})
		d.scan()
		<-time.After(time.Minute)
		if got := d.scan(); len(got) != 0 {
			t.Errorf("reported %v", got)
		}
		if strings.Contains(d.log.String(), events.ObserveWorkerFailed) {
			t.Error("the worker was judged dead")
		}
		for range 3 { // a living worker may not have renewed its heartbeat yet
			<-time.After(250 * time.Millisecond)
			if got := d.scan(); len(got) != 0 {
				t.Errorf("within two heartbeats it reported %v", got)
			}
		}
		<-time.After(250 * time.Millisecond)
		if got := d.scan(); len(got) != 1 {
			t.Errorf("then it reported %v", got)
		}
	})
}

// After the clock was set back by an hour, earlier times are in the future. A
// worker is alive if it renews its heartbeat. The shards of a worker that does not
// are lost at once, and its heartbeat is deleted.
func TestDeadWorkersAreFoundAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	const back = -time.Hour // the age of what was written before the clock was set
	held := health.HeldShard{Run: id, Shard: 0, Attempt: 1}
	for name, c := range map[string]struct {
		claimed bool
		renews  bool // the holder is alive
		want    int  // reports
	}{
		"living holder": {claimed: true, renews: true},
		"dead holder":   {claimed: true, want: 1},
		"unclaimed":     {want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				d.running(id, time.Now().Add(-back))
				if c.claimed {
					d.holder(back)
					d.beat("w1", back, health.Ready, held)
				}
				var got []events.Payload
				for range 8 * 4 { // 8 s
					got = append(got, d.scan()...)
					if len(got) > 0 {
						break
					}
					<-time.After(250 * time.Millisecond)
					if c.renews {
						d.beat("w1", 0, health.Ready, held)
					}
				}
				if len(got) != c.want {
					t.Errorf("reported %v, want %d", got, c.want)
				}
				_, err := d.Docs.Get(t.Context(), record.HeartbeatKey("w1"))
				if exists := err == nil; exists != c.renews {
					t.Errorf("the holder has a heartbeat: %v, want %v", exists, c.renews)
				}
			})
		})
	}
}

func TestClocksDivergedDetectsASuspend(t *testing.T) {
	t.Parallel()
	const failure = 5 * time.Second
	for name, c := range map[string]struct {
		mono, wall time.Duration
		want       bool
	}{
		"on time":                 {250 * time.Millisecond, 250 * time.Millisecond, false},
		"late":                    {19 * time.Second, 19 * time.Second, false},
		"clock adjusted":          {250 * time.Millisecond, 2 * time.Second, false},
		"monotonic clock stopped": {250 * time.Millisecond, time.Hour, true},
		"wall clock set back":     {250 * time.Millisecond, -time.Hour, true},
		"no scan for an hour":     {time.Hour, time.Hour, true},
	} {
		if got := clocksDiverged(c.mono, c.wall, failure); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCoordinateIsWokenForOverdueRuns(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	saved := func(p run.Phase, minutes int) run.State {
		return run.State{Phase: p, Complete: p != run.Planning, SavedAt: now.Add(-time.Duration(minutes) * time.Minute)}
	}
	retries := func(n int, s run.State) run.State {
		s.Retries = n
		return s
	}
	effects := func(k run.EffectKind, s run.State) run.State {
		s.Effects = run.Effects{{Kind: k}}
		return s
	}
	deadline := func(s run.State) run.State {
		s.Deadline = now
		return s
	}
	growing := func(shards int) run.State {
		s := saved(run.Running, 3)
		s.Complete, s.Growing, s.Shards = false, true, shards
		return s
	}
	for name, c := range map[string]struct {
		s    run.State
		want string
	}{
		"running":                    {saved(run.Running, 60), ""},
		"growing, with open shards":  {growing(2), ""},
		"growing, all shards done":   {growing(0), "plan is outstanding"},
		"pausing":                    {saved(run.Pausing, 0), "stopping"},
		"ending":                     {saved(run.Ending, 0), "stopping"},
		"paused":                     {run.State{Phase: run.Paused, SavedAt: now.Add(-time.Hour)}, ""},
		"finalizing":                 {saved(run.Finalizing, 1), ""},
		"finalizing too long":        {saved(run.Finalizing, 3), "finalize is outstanding"},
		"planning":                   {saved(run.Planning, 1), ""},
		"first retry of finalize":    {effects(run.Finalize, retries(1, saved(run.Finalizing, 3))), ""},
		"first retry too long":       {retries(1, saved(run.Finalizing, 5)), "finalize is outstanding"},
		"many retries of finalize":   {retries(1000, saved(run.Finalizing, 16)), "finalize is outstanding"},
		"second retry of the plan":   {retries(2, saved(run.Planning, 7)), ""},
		"planning too long":          {saved(run.Planning, 3), "plan is outstanding"},
		"effects too long":           {effects(run.Replan, saved(run.Running, 3)), "effects are outstanding"},
		"at the deadline":            {deadline(saved(run.Running, 0)), "the deadline is over"},
		"paused at the deadline":     {deadline(saved(run.Paused, 0)), "the deadline is over"},
		"finalizing at the deadline": {deadline(saved(run.Finalizing, 0)), ""},
	} {
		if got := due(c.s, now); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Few shards are in flight of a run that shares its pool. A worker that joins would find
// none in the queue, so that coordinate looks again.
func TestCoordinateIsWokenWhenWorkersJoin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit  func(*run.State)
		state health.State
		start time.Duration // of the worker, from now
		want  int
	}{
		"a worker joins":                       {func(*run.State) {}, health.Ready, -time.Second, 1},
		"it joined before the run's last step": {func(*run.State) {}, health.Ready, -time.Minute, 0},
		"it joined long ago": {func(s *run.State) { s.SavedAt = time.Now().Add(-time.Hour) }, health.Ready,
			-5 * time.Minute, 0},
		"it waits for its server": {func(*run.State) {}, health.Init, -time.Second, 1},
		"it drains":               {func(*run.State) {}, health.Draining, -time.Second, 0},
		"every shard is sent":     {func(s *run.State) { s.Shards = 1 }, health.Ready, -time.Second, 0},
		"the run pauses":          {func(s *run.State) { s.Phase = run.Paused }, health.Ready, -time.Second, 0},
	} {
		d := newFixture(t)
		d.running(id, time.Now(), func(s *run.State) {
			s.Shards, s.SavedAt = 9, time.Now().Add(-10*time.Second)
			c.edit(s)
		})
		at := time.Now()
		d.save(record.HeartbeatKey("w1"), health.Heartbeat{Schema: 1, Worker: "w1", State: c.state, At: at,
			DueAt: d.timings.Due(at), Started: at.Add(c.start)})
		for scan := range 2 { // the second one comes too early to ask again
			want := c.want
			if scan > 0 {
				want = 0
			}
			if got := d.scan(); len(got) != want {
				t.Errorf("%s: scan %d reports %v, want %d", name, scan, got, want)
			}
		}
	}
}

// Each request for the plan is followed by a longer wait than the last, because
// planning may take long.
func TestPlanOfRunWithoutStateIsRequestedAgain(t *testing.T) {
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
			<-time.After(10 * time.Second) // too short for a suspend
		}
		want := []time.Duration{2 * time.Minute, 4 * time.Minute, 9 * time.Minute, 18 * time.Minute,
			33 * time.Minute, 48 * time.Minute}
		if !slices.Equal(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
	})
}

// A run stays in the index until it has ended, or its submission has failed.
func TestIndexKeepsOnlyOpenRuns(t *testing.T) {
	t.Parallel()
	ended := func(p run.Phase) func(fixture) {
		return func(d fixture) { d.running(id, time.Now(), func(s *run.State) { s.Phase = p }) }
	}
	for name, c := range map[string]struct {
		given func(fixture)
		kept  bool
	}{
		"completed":   {ended(run.Completed), false},
		"stopped":     {ended(run.Stopped), false},
		"paused":      {ended(run.Paused), true},
		"interrupted": {ended(run.Interrupted), true},
		"finalizing":  {ended(run.Finalizing), true},
		"refused": {func(d fixture) {
			d.addOpen(id)
			d.save(record.ManifestKey(id), record.Manifest{Schema: 1, Run: id, Refused: "no pool"})
		}, false},
		"being submitted": {func(d fixture) { d.addOpen(id) }, true},
		"submission failed an hour ago": {func(d fixture) {
			d.save(record.OpenRunKey(id), record.OpenRun{Schema: 1, Run: id, At: time.Now().Add(-retainFor - 1)})
		}, false},
		"of a newer schema": {func(d fixture) { d.save(record.OpenRunKey(id), record.OpenRun{Schema: 99, Run: id}) }, true},
		"not a run's key":   {func(d fixture) { d.save("open/nonsense", record.OpenRun{Schema: 1}) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newFixture(t)
			c.given(d)
			_ = d.Scan(t.Context()) // it may fail to read some documents
			left := 0
			for _, err := range document.All(t.Context(), d.Docs, record.OpenRunPrefix) {
				if left++; err != nil {
					t.Error(err)
				}
			}
			if (left == 1) != c.kept {
				t.Errorf("%s: %d entries", name, left)
			}
		})
	}
}

// A submission renews its entry while a scan is about to delete it.
func TestRenewedEntryOfTheIndexIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		old := record.OpenRun{Schema: 1, Run: id, At: time.Now().Add(-2 * retainFor)}
		d.save(record.OpenRunKey(id), old)
		read, err := d.Docs.Get(t.Context(), record.OpenRunKey(id))
		if err != nil {
			t.Fatal(err)
		}
		renewed := record.Encode(record.OpenRun{Schema: 1, Run: id, At: time.Now()})
		if _, err := d.Docs.Replace(t.Context(), read.Key, renewed, read.Revision); err != nil {
			t.Fatal(err)
		}
		if err := d.forgetOpen(t.Context(), read); err != nil {
			t.Errorf("%v", err)
		}
		hosttest.Load[record.OpenRun](t, d.Ports, record.OpenRunKey(id))
	})
}

func TestErrorOfOneRunDoesNotStopTheScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		const second identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVZ"
		d.running(id, time.Now().Add(-time.Minute))
		d.running(second, time.Now().Add(-time.Minute))
		if _, err := d.Ports.Docs.Create(t.Context(), identity.ShardKey(id, 0), []byte("{")); err != nil {
			t.Fatal(err)
		}
		if err := d.Scan(t.Context()); err == nil || !strings.Contains(err.Error(), string(id)) {
			t.Errorf("the error is %v", err)
		}
		got := d.received(host.CoordinateQueue)
		if len(got) != 1 || got[0].(events.ShardLost).Run != string(second) {
			t.Errorf("reported %v", got)
		}
	})
}

// The documents of two shards are damaged: one does not decode, and the report of the other
// is not valid.
func TestDamagedShardDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		long := time.Now().Add(-time.Minute)
		d.running(id, long, func(s *run.State) {
			s.Shards, s.NextShard = 5, 5
			s.InFlight = schedule.InFlight{Chunks: []schedule.Chunk{
				{Range: interval.Range{Lo: 0, Hi: 4}, SentAt: long}, {Range: interval.Range{Lo: 4, Hi: 5}, SentAt: long}}}
		})
		if _, err := d.Ports.Docs.Create(t.Context(), identity.ShardKey(id, 0), []byte("{")); err != nil {
			t.Fatal(err)
		}
		for n := 1; n < 5; n++ {
			doc := shard.Doc{Schema: 1, Run: id, Shard: n, State: shard.Done, Counts: shard.Counts{OK: 1}}
			if n == 2 {
				doc.Counts.TokenNanoUSD = -1
			}
			d.save(identity.ShardKey(id, n), doc)
		}
		if err := d.Scan(t.Context()); err == nil || !strings.Contains(err.Error(), "token_nano_usd") {
			t.Errorf("the error is %v", err)
		}
		var got []int
		for _, p := range d.received(host.CoordinateQueue) {
			if done, ok := p.(events.ShardDone); ok {
				got = append(got, done.Shard)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, []int{1, 3, 4}) {
			t.Errorf("reported %v, want 1, 3 and 4", got)
		}
	})
}

func TestWakeAllWakesEveryOpenRun(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.running(id, time.Now())
	d.running("01JD2ZQ4T5W0M1X9YB7R3K8CVX", time.Now(), func(s *run.State) { s.Complete, s.Phase = false, run.Paused })
	d.running("01JD2ZQ4T5W0M1X9YB7R3K8CVZ", time.Now(), func(s *run.State) { s.Phase = run.Completed })
	// An earlier version wrote no index.
	for _, key := range []string{record.OpenRunKey(id), record.OpenRunKey("01JD2ZQ4T5W0M1X9YB7R3K8CVZ")} {
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
	if got := d.received(host.CoordinateQueue); len(got) != 2 {
		t.Errorf("woken %v", got)
	}
	if got := d.received(host.TaskQueue); len(got) != 1 {
		t.Errorf("planned %v", got)
	}
	_, err := d.Docs.Get(t.Context(), record.OpenRunKey("01JD2ZQ4T5W0M1X9YB7R3K8CVZ"))
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("the ended run is in the index: %v", err)
	}
}
