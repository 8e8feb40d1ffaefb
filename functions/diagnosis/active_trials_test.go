package diagnosis_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"rollout/functions/diagnosis"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// holds says that a worker, whose heartbeat is due at a time from now, holds these trials, and has
// applied a control sequence.
func (f *gridFixture) holds(worker string, due time.Duration, control uint64, trials ...string) {
	f.t.Helper()
	b := health.Heartbeat{Schema: 1, Worker: worker, Pool: "default", State: health.Ready, At: noon, DueAt: noon.Add(due),
		Control: map[identity.RunID]uint64{runA: control}}
	for _, id := range trials {
		n := f.shard[id]
		b.Holds = append(b.Holds, health.HeldShard{Run: runA, Shard: n, Attempt: 1})
		f.save(identity.ShardKey(runA, n), shard.Doc{Schema: 1, Run: runA, Shard: n, State: shard.Running, Attempt: 1,
			Worker: worker, ClaimedAt: noon.Add(-time.Minute)})
	}
	f.save(record.HeartbeatKey(worker), b)
}

func (f *gridFixture) active(from int) diagnosis.TrialsInFlight {
	f.t.Helper()
	out, err := f.ActiveTrials(f.t.Context(), runA, from)
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

// TestTrialsInFlightAreThoseOfLivingHolders has a trial of a dead worker, and one that a worker has
// lost to another one. A pause waits for the worker that has not acknowledged it.
func TestTrialsInFlightAreThoseOfLivingHolders(t *testing.T) {
	t.Parallel()
	f := newGrid(t, config.TrialsInterleaved, 10)
	f.holds("w-dead", -time.Hour, 0, "t0.a.r0")
	f.holds("w1", time.Minute, 3, "t1.a.r0", "t2.b.r1")
	f.holds("w2", time.Minute, 4, "t3.b.r0")
	lost := hold(f, "t2.b.r1")
	lost.Worker, lost.Attempt = "w3", 2
	f.save(identity.ShardKey(runA, lost.Shard), lost)
	f.save(record.ControlKey(runA), record.Control{Schema: 1, Sequence: 4, Desired: record.DesiredPause, Reason: "lunch",
		At: noon})
	f.state.Phase = run.Pausing
	f.sent()
	got := f.active(0)
	validate(t, got)
	if len(got.Control.Active) != 2 || got.Next != nil || got.Control.Status != run.Pausing {
		t.Fatalf("%+v", got)
	}
	a := got.Control.Active["t1.a.r0"]
	want := diagnosis.ActiveTrial{ID: "t1.a.r0", Worker: "w1", Index: 2, Slot: 4, Task: "task-1", Variant: "a", Attempt: 1,
		StartedAt: noon.Add(-time.Minute).UTC(), Control: diagnosis.TrialControl{Acknowledged: 3}}
	if a != want || !got.Control.Active["t3.b.r0"].Control.Current {
		t.Errorf("%+v, want %+v", got.Control.Active, want)
	}
	if p := got.Control.Pause; p == nil || p.Reason != "lunch" || p.Sequence != 4 || len(p.Pending) != 1 ||
		p.Pending[0] != "w1" {
		t.Errorf("the pause is %+v", p)
	}
}

func hold(f *gridFixture, trial string) shard.Doc {
	return shard.Doc{Schema: 1, Run: runA, Shard: f.shard[trial], State: shard.Running, ClaimedAt: noon}
}

// TestTrialsInFlightArePaged has more trials in flight than a page, with ids that are long as JSON.
func TestTrialsInFlightArePaged(t *testing.T) {
	t.Parallel()
	f := newGrid(t, config.TrialsInterleaved, 40)
	var all []string
	for n := range 40 {
		all = append(all, fmt.Sprintf("t%d.a.r0", n), fmt.Sprintf("t%d.b.r0", n))
	}
	f.holds("w1", time.Minute, 0, all...)
	f.sent()
	seen, from := map[string]bool{}, 0
	for pages := 1; ; pages++ {
		got := f.active(from)
		validate(t, got)
		if b, _ := json.Marshal(got); len(b) > 64<<10 {
			t.Errorf("a page has %d bytes", len(b))
		}
		for id := range got.Control.Active {
			seen[id] = true
		}
		if got.Next == nil {
			if pages != 2 || len(seen) != len(all) {
				t.Errorf("%d trials on %d pages", len(seen), pages)
			}
			break
		}
		from = *got.Next
	}
}

func TestRunOfAnotherKindHasNoTrialsInFlight(t *testing.T) {
	t.Parallel()
	f := newGrid(t, config.TrialsInterleaved, 1)
	f.m.Kind = config.KindBatch
	f.save(record.ManifestKey(runA), f.m)
	if _, err := f.ActiveTrials(t.Context(), runA, 0); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}

// schema compiles one of the schemas of the API.
func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	s, err := c.Compile(filepath.Join("..", "api", "schema", name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validates(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// validate checks an answer against run_control_v2 and schedule_progress_v2, and that both refuse
// damaged answers.
func validate(t *testing.T, got diagnosis.TrialsInFlight) {
	t.Helper()
	for name, v := range map[string]any{"run_control_v2.json": got.Control, "schedule_progress_v2.json": got.Progress} {
		s := schema(t, name)
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := validates(t, s, string(b)); err != nil {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
		for _, broken := range []string{strings.Replace(string(b), `"run_id":`, `"run":`, 1),
			strings.Replace(string(b), `_v2"`, `_v1"`, 1), strings.Replace(string(b), `{`, `{"more":1,`, 1),
			strings.Replace(string(b), `"attempt":1`, `"attempt":0`, 1), strings.Replace(string(b), `"in_flight":`,
				`"in_flight":-1`, 1)} {
			if broken != string(b) && validates(t, s, broken) == nil {
				t.Errorf("%s admits %s", name, broken)
			}
		}
	}
}
