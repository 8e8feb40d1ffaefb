package health

import (
	"encoding/json"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
)

const run = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

var (
	embedded = Timings{Interval: 500 * time.Millisecond, SelfFence: 4 * time.Second,
		FailureTimeout: 5 * time.Second, SkewBudget: 250 * time.Millisecond}
	skewed = Timings{Interval: time.Second, SelfFence: time.Second,
		FailureTimeout: 2 * time.Second, SkewBudget: 3 * time.Second}
	start = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
)

func TestVisibilityIsTheFailureTimeoutWithinBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ failure, want time.Duration }{
		{5 * time.Second, 5 * time.Second},
		{time.Minute, 30 * time.Second},
		{100 * time.Millisecond, time.Second},
	} {
		if got := (Timings{FailureTimeout: c.failure}).Visibility(); got != c.want {
			t.Errorf("failure after %s: hidden for %s, want %s", c.failure, got, c.want)
		}
	}
}

func TestDeadAfterSkewBudgetAndFailureTimeout(t *testing.T) {
	t.Parallel()
	if due := embedded.Due(start); due != start.Add(time.Second) {
		t.Errorf("the next heartbeat is due at %s", due)
	}
	for _, c := range []struct {
		name    string
		timings Timings
		state   State
		over    time.Duration // now − due_at
		dead    bool
	}{
		{"before it is due", embedded, Ready, -time.Second, false},
		{"just due", embedded, Ready, 0, false},
		{"past the skew budget alone", embedded, Ready, 251 * time.Millisecond, false},
		{"at the failure timeout", embedded, Ready, 5 * time.Second, false},
		{"past the failure timeout", embedded, Ready, 5*time.Second + 1, true},
		{"past the timeout, at the skew budget", skewed, Ready, 3 * time.Second, false},
		{"past both", skewed, Ready, 3*time.Second + 1, true},
		{"past the timeout alone", skewed, Ready, 2*time.Second + 1, false},
		{"starting counts like ready", embedded, Init, 5*time.Second + 1, true},
		{"draining counts like ready", embedded, Draining, 5 * time.Second, false},
		{"gone in order is dead at once", embedded, Gone, -time.Second, true},
	} {
		b := Heartbeat{State: c.state, DueAt: start}
		if got := c.timings.Dead(b, start.Add(c.over)); got != c.dead {
			t.Errorf("%s: dead is %v", c.name, got)
		}
	}
}

// TestDetectionWithinEightSeconds adds up the worst case: a heartbeat that was just
// sent, its due time, the timeout, the skew budget of the judge, and the next scan
// half an interval later.
func TestDetectionWithinEightSeconds(t *testing.T) {
	t.Parallel()
	worst := embedded.Due(start).Sub(start) + embedded.FailureTimeout + embedded.SkewBudget + embedded.Interval/2
	if worst > 8*time.Second {
		t.Errorf("detection takes up to %s", worst)
	}
	if embedded.SelfFence >= embedded.Due(start).Sub(start)+embedded.FailureTimeout-embedded.SkewBudget {
		t.Error("a worker whose clock is ahead may be taken over before it fences itself")
	}
}

func TestHoldsClaim(t *testing.T) {
	t.Parallel()
	b := Heartbeat{Holds: []HeldShard{{Run: "A", Shard: 1, Attempt: 1}, {Run: run, Shard: 7, Attempt: 2}}}
	for _, c := range []struct {
		held HeldShard
		want bool
	}{
		{HeldShard{Run: run, Shard: 7, Attempt: 2}, true},
		{HeldShard{Run: run, Shard: 7, Attempt: 1}, false},
		{HeldShard{Run: run, Shard: 8, Attempt: 2}, false},
		{HeldShard{Run: "A", Shard: 7, Attempt: 2}, false},
	} {
		if got := b.HoldsClaim(c.held.Run, c.held.Shard, c.held.Attempt); got != c.want {
			t.Errorf("holds %+v: %v", c.held, got)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	running := shard.Doc{Run: run, Shard: 7, State: shard.Running, Attempt: 2, Worker: "w", ClaimedAt: start}
	lists, other := []HeldShard{{Run: run, Shard: 7, Attempt: 2}}, []HeldShard{{Run: run, Shard: 7, Attempt: 1}}
	beat := func(after time.Duration, holds []HeldShard) *Heartbeat {
		at := start.Add(after)
		return &Heartbeat{State: Ready, At: at, DueAt: embedded.Due(at), Holds: holds}
	}
	gone := beat(time.Second, lists)
	gone.State = Gone
	for _, c := range []struct {
		name string
		doc  shard.Doc
		beat *Heartbeat
		now  time.Duration
		want Verdict
	}{
		{"no document", shard.New(run, 7), nil, 0, Unclaimed},
		{"released, its last holder alive", shard.Doc{State: shard.Pending, Attempt: 2}, beat(0, nil), 0, Unclaimed},
		{"done", shard.Doc{State: shard.Done, Worker: "w"}, nil, time.Hour, Finished},
		{"held and listed", running, beat(time.Second, lists), time.Second, Alive},
		{"the holder never had a heartbeat", running, nil, 0, HolderDead},
		{"the holder is dead", running, beat(time.Second, lists), 7*time.Second + 1, HolderDead},
		{"the holder is just not dead", running, beat(time.Second, lists), 7 * time.Second, Alive},
		{"the holder left in order", running, gone, time.Second, HolderDead},
		{"claimed after the last heartbeat", running, beat(-time.Second, nil), 0, Alive},
		{"heartbeat as old as the claim", running, beat(0, nil), time.Second, Alive},
		{"newer heartbeat does not list it", running, beat(1, nil), time.Second, NotListed},
		{"newer heartbeat lists an older attempt", running, beat(time.Second, other), time.Second, NotListed},
		{"not listed, and the holder is dead", running, beat(time.Second, nil), time.Hour, HolderDead},
	} {
		if got := embedded.Judge(c.doc, c.beat, start.Add(c.now)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestHeartbeatJSON pins the document's format.
func TestHeartbeatJSON(t *testing.T) {
	t.Parallel()
	b := Heartbeat{Schema: 1, Worker: "w", Pool: "p", State: Ready, At: start, DueAt: start, Started: start,
		MaxInFlight: 8, Host: "h", PID: 2, CPUs: 3, GPUs: 4, Instance: "i-1",
		Holds: []HeldShard{{Run: run, Shard: 7, Attempt: 2}}, Control: map[identity.RunID]uint64{run: 5}}
	got, err := json.Marshal(b)
	const at = `"2025-01-01T00:00:00Z"`
	want := `{"schema":1,"worker":"w","pool":"p","state":"ready","at":` + at + `,"due_at":` + at +
		`,"started":` + at + `,"in_flight":8,"host":"h","pid":2,"cpus":3,"gpus":4,"instance":"i-1",` +
		`"holds":[{"run":"` + run + `","shard":7,"attempt":2}],` +
		`"load":{"busy":0,"rows":0,"tokens":0,"rate":0,"token_rate":0,"median_ms":0,"faults":0},` +
		`"control":{"` + run + `":5}}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s (%v)\nwant %s", got, err, want)
	}
}

func TestRestIntervalKeepsTheLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ interval, fence, want time.Duration }{
		{500 * time.Millisecond, 4 * time.Second, 4 * time.Second / 3},
		{10 * time.Second, 40 * time.Second, 40 * time.Second / 3},
		{time.Second, time.Minute, 4 * time.Second},
		{3 * time.Second, 4 * time.Second, 3 * time.Second}, // never more often than at work
	} {
		got := Timings{Interval: c.interval, SelfFence: c.fence}.RestInterval()
		if got != c.want {
			t.Errorf("interval %s, self-fence %s: rests %s, want %s", c.interval, c.fence, got, c.want)
		}
	}
}
