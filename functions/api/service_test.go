package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/api"
	"rollout/functions/status/statustest"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/listen"
	"rollout/shared/observe/probes"
	"rollout/shared/record"
)

const (
	runA = statustest.RunA
	runB = statustest.RunB
)

var noon = statustest.Noon

// fixture is a service over empty stores at noon.
type fixture struct {
	*api.Service
	t     *testing.T
	ports host.Ports
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	p := hosttest.With(clock.Fixed(noon))
	return fixture{api.New(p, config.DefaultDeployment(), cloud.OneMachine()), t, p}
}

// probes returns the probes of a process with a metric.
func (d fixture) probes() probes.Probes {
	return probes.Probes{Ping: d.ports.Docs.Ping, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		listen.WriteJSON(w, http.StatusOK, "counted")
	})}
}

func (d fixture) save(key string, v any) {
	d.t.Helper()
	hosttest.Save(d.t, d.ports, key, v)
}

// The cloud's report about a fleet is shown only if the pool has no living worker.
func TestRunWithoutWorkersShowsWhyNoMachineStarts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at    cloud.Profile
		beat  bool
		tells bool
	}{
		"in a cloud":            {statustest.InCloud(), false, true},
		"where a machine works": {statustest.InCloud(), true, false},
		"on a laptop":           {cloud.OneMachine(), false, false},
	} {
		d := newFixture(t)
		d.Service = api.New(d.ports, config.DefaultDeployment(), c.at)
		d.submitted(runA, run.Running)
		pool := statustest.Manifest(runA).Pool
		d.save(record.FleetKey(pool), record.Fleet{Schema: 1, AbsentAt: noon.Add(-time.Minute), Absent: "no capacity"})
		if c.beat {
			d.beat("w", pool)
		}
		s, err := d.Show(t.Context(), runA)
		told := false
		for _, h := range s.Blockers {
			told = told || strings.Contains(h.Text, "no capacity")
		}
		if err != nil || told != c.tells {
			t.Errorf("%s: %+v, %v", name, s.Blockers, err)
		}
	}
}

// beat saves the heartbeat of a living worker.
func (d fixture) beat(worker, pool string) {
	d.t.Helper()
	d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: pool, State: health.Ready,
		At: noon, DueAt: noon.Add(time.Second)})
}

// submitted saves a run in that phase.
func (d fixture) submitted(id identity.RunID, p run.Phase) {
	d.t.Helper()
	d.save(record.ManifestKey(id), statustest.Manifest(id))
	st := run.New(id)
	st.Phase = p
	d.save(record.CoordinatorKey(id), st)
}

func (d fixture) control(id identity.RunID) record.Control {
	d.t.Helper()
	return hosttest.Load[record.Control](d.t, d.ports, record.ControlKey(id))
}

// received receives all events of the queue.
func (d fixture) received(queue string) []events.Payload {
	d.t.Helper()
	ms, err := d.ports.Queues.Receive(d.t.Context(), queue, 100, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []events.Payload
	for _, m := range ms {
		_, p, err := events.Decode(m.Body)
		if err != nil {
			d.t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestListShowsTheNewestFirst(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Running)
	m := statustest.Manifest(runB)
	m.CreatedAt = noon.Add(-time.Hour)
	d.save(record.ManifestKey(runB), m)
	runs, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2 || runs[0].Run != runA || runs[1].Run != runB {
		t.Errorf("got %+v", runs)
	}
	if runs[1].Phase != run.Planning {
		t.Errorf("a run that coordinate has not seen yet is %q, want planning", runs[1].Phase)
	}
}

func TestShowOfUnknownRunNamesTheCommandThatListsRuns(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, id := range []identity.RunID{runA, "nightly", "../../etc"} {
		_, err := d.Show(t.Context(), id)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), string(id)) ||
			!strings.Contains(err.Error(), "`rollout status`") {
			t.Errorf("Show(%q): %v", id, err)
		}
	}
}

func TestDocumentsOfNewerSchemaAreRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	m := statustest.Manifest(runA)
	m.Schema = record.SchemaParts + 1
	d.save(record.ManifestKey(runA), m)
	if _, err := d.Show(t.Context(), runA); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("got %v", err)
	}
}

func TestSteering(t *testing.T) {
	t.Parallel()
	type steer = func(context.Context, identity.RunID, string) error
	pause := func(d fixture) steer { return d.Pause }
	resume := func(d fixture) steer { return d.Resume }
	stop := func(d fixture) steer { return d.Stop }
	const pauses, runs, ends = record.DesiredPause, record.DesiredRun, record.DesiredEnd
	none := record.Control{}
	stopped := func(sequence uint64) record.Control {
		return record.Control{Sequence: sequence, Desired: ends, Reason: "stopped", Text: "why"}
	}
	to := func(sequence uint64, desired record.Desired, reason string) record.Control {
		return record.Control{Sequence: sequence, Desired: desired, Reason: reason}
	}
	for name, c := range map[string]struct {
		phase  run.Phase
		before record.Control
		do     func(fixture) steer
		want   record.Control // without schema and time; equal to before if nothing is written
		kind   fault.Kind     // of the error; 0 without one
	}{
		"pause running":              {run.Running, none, pause, to(1, pauses, "why"), 0},
		"pause planning":             {run.Planning, none, pause, to(1, pauses, "why"), 0},
		"pause paused":               {run.Paused, to(4, pauses, "old"), pause, to(4, pauses, "old"), 0},
		"pause again after a resume": {run.Running, to(5, runs, ""), pause, to(6, pauses, "why"), 0},
		"pause with an end desired":  {run.Running, to(5, ends, "stopped"), pause, to(5, ends, "stopped"), fault.Conflict},
		"pause finalizing":           {run.Finalizing, none, pause, none, fault.Conflict},
		"pause completed":            {run.Completed, none, pause, none, fault.Conflict},
		"resume paused":              {run.Paused, to(4, pauses, ""), resume, to(5, runs, "why"), 0},
		"resume interrupted":         {run.Interrupted, to(4, pauses, ""), resume, to(5, runs, "why"), 0},
		"resume paused by itself":    {run.Paused, none, resume, to(1, runs, "why"), 0},
		"resume running":             {run.Running, to(5, runs, ""), resume, to(5, runs, ""), 0},
		"resume never steered":       {run.Running, none, resume, none, 0},
		"resume failed":              {run.Failed, none, resume, none, fault.Conflict},
		"stop running":               {run.Running, none, stop, stopped(1), 0},
		"stop paused":                {run.Paused, to(4, pauses, ""), stop, stopped(5), 0},
		"stop ending":                {run.Ending, to(5, ends, "budget"), stop, to(5, ends, "budget"), 0},
		"stop finalizing":            {run.Finalizing, none, stop, stopped(1), 0},
		"stop stopped":               {run.Stopped, to(5, ends, "stopped"), stop, to(5, ends, "stopped"), 0},
		"stop expired":               {run.Expired, none, stop, none, fault.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.submitted(runA, c.phase)
			if c.before != (record.Control{}) {
				d.save(record.ControlKey(runA), c.before)
			}
			err := c.do(d)(t.Context(), runA, "why")
			if c.kind != 0 && !fault.Is(err, c.kind) || c.kind == 0 && err != nil {
				t.Fatalf("error %v, want kind %s", err, c.kind)
			}
			got := d.control(runA)
			if got.Sequence != c.before.Sequence && (got.Schema != record.Schema || !got.At.Equal(noon)) {
				t.Errorf("written with schema %d at %s", got.Schema, got.At)
			}
			got.Schema, got.At = 0, time.Time{}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("control (-want +got):\n%s", d)
			}
			if err == nil && !c.phase.Ended() {
				want := []events.Payload{events.ControlChanged{Run: string(runA), Sequence: got.Sequence}}
				if d := cmp.Diff(want, d.received(host.CoordinateQueue)); d != "" {
					t.Errorf("coordinate received (-want +got):\n%s", d)
				}
			}
		})
	}
}

func TestSteeringAnEndedRunIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.CompletedWithErrors)
	err := d.Pause(t.Context(), runA, "")
	want := "run " + string(runA) + " has ended (completed with errors): it can't be paused"
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if err := d.Stop(t.Context(), runB, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown run: %v", err)
	}
}

func TestReasonMustBeShortPrintableText(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.submitted(runA, run.Running)
	for _, reason := range []string{"\x1b[2J", strings.Repeat("x", 513), "\xff"} {
		if err := d.Pause(t.Context(), runA, reason); !fault.Is(err, fault.Invalid) {
			t.Errorf("reason %.10q: %v", reason, err)
		}
	}
}

func TestWorkersAreJudgedByTheirHeartbeats(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	held := []health.HeldShard{{Run: runA, Shard: 3, Attempt: 1}}
	for worker, due := range map[string]time.Duration{
		"w-late": -4 * time.Second, "w-dead": -6 * time.Second, "w-live": time.Second,
	} {
		d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "default",
			State: health.Ready, DueAt: noon.Add(due), Holds: held})
	}
	d.save(record.HeartbeatKey("w-gone"), health.Heartbeat{Schema: 1, Worker: "w-gone", Pool: "default",
		State: health.Gone, DueAt: noon.Add(time.Hour)})
	d.save(record.WorkerKey("w-live"), record.WorkerMark{Schema: 1, DrainReason: "scale in"})
	workers, err := d.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range workers {
		line := w.Worker + " dead"
		if w.Alive {
			line = w.Worker + " alive"
		}
		got = append(got, line+" "+w.Draining)
	}
	if d := cmp.Diff([]string{"w-late alive ", "w-live alive scale in", "w-dead dead ", "w-gone dead "}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	d.submitted(runA, run.Running)
	st, err := d.Show(t.Context(), runA)
	if err != nil || st.Shards.Running != 2 {
		t.Errorf("running shards %d, want the 2 of living workers; error %v", st.Shards.Running, err)
	}
}

func TestSubmitNamesTheRunOfTheUpload(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	info, err := d.ports.Blobs.Put(t.Context(), "prompts/x.jsonl", strings.NewReader("{}\n"), putOptions)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Submit(t.Context(), "prompts/x.jsonl")
	if err != nil || a.Run != identity.UploadRun("local", "prompts/x.jsonl", info.Version) {
		t.Fatalf("%+v, %v", a, err)
	}
	want := []events.Payload{events.ObjectCreated{Bucket: "local", Key: "prompts/x.jsonl", Version: info.Version, Size: 3}}
	if d := cmp.Diff(want, d.received(host.TaskQueue)); d != "" {
		t.Errorf("submit received (-want +got):\n%s", d)
	}
	for key, kind := range map[string]fault.Kind{
		"prompts/absent.jsonl": fault.NotFound, "runs/x.jsonl": fault.Invalid, "prompts/.x.jsonl": fault.Invalid,
		"prompts/x.csv": fault.Invalid, "prompts/.jsonl": fault.Invalid, "prompts/../run/x.jsonl": fault.Invalid,
		"": fault.Invalid,
	} {
		if _, err := d.Submit(t.Context(), key); !fault.Is(err, kind) {
			t.Errorf("Submit(%q): %v, want %s", key, err, kind)
		}
	}
}

// Checkpoints of shards that were just sent are not read.
func TestRowsInCheckpointsAreUncommitted(t *testing.T) {
	t.Parallel()
	for sent, want := range map[time.Duration]uint64{-time.Minute: 220, -time.Second: 120} {
		testUncommitted(t, noon.Add(sent), want)
	}
}

func testUncommitted(t *testing.T, sent time.Time, want uint64) {
	t.Helper()
	d := newFixture(t)
	d.save(record.ManifestKey(runA), statustest.Manifest(runA))
	st := run.New(runA)
	st.Phase, st.Items, st.Shards, st.NextShard, st.SavedAt = run.Running, 1000, 4, 3, noon
	st.Done.Set.Add(0)
	st.InFlight.MarkSent(0, sent, interval.Range{Lo: 1, Hi: 3})
	d.save(record.CoordinatorKey(runA), st)
	for n, state := range []shard.State{shard.Done, shard.Running, shard.Pending} {
		doc := shard.New(runA, n)
		doc.State, doc.Worker, doc.Attempt, doc.Checkpoint = state, "w", 1, &shard.Ref{Key: "k"}
		doc.Counts = shard.Counts{OK: 90, Failed: 10}
		d.save(identity.ShardKey(runA, n), doc)
	}
	d.save(record.HeartbeatKey("w"), health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready,
		DueAt: noon, Holds: []health.HeldShard{{Run: runA, Shard: 1, Attempt: 1, Items: 256, Rows: 120}}})
	s, err := d.Show(t.Context(), runA)
	if err != nil || s.Items.Uncommitted != want {
		t.Errorf("sent at %s: %+v, %v: want %d, the worker's 120 and those of checkpoints", sent, s.Items, err, want)
	}
}
