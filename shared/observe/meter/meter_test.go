package meter_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"rollout/shared/clock"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/queue"
)

const id = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

// busy is a meter that heard of everything once.
func busy(t *testing.T) *meter.Meter {
	t.Helper()
	m := meter.New()
	c := observe.Claim{Run: id, Shard: 1, Attempt: 1, Worker: "w"}
	counts := shard.Counts{OK: 250, Failed: 6, ByClass: map[string]int{"too_long": 5, "poison": 1}}
	for _, e := range []observe.Event{observe.RunSubmitted{}, observe.RunRefused{}, observe.RunPlanned{}, observe.RunPhase{}, observe.RunEnded{Phase: "completed"},
		observe.ShardClaimed{Claim: c}, observe.ShardCheckpoint{Claim: c, Bytes: 1000}, observe.ShardDone{Claim: c, Counts: counts, Bytes: 5000},
		observe.ShardDone{Claim: c, Sealed: fault.Expired}, observe.ShardLost{}, observe.ShardReleased{Claim: c},
		observe.WorkerRegistered{Pool: "default"}, observe.WorkerHeartbeat{Pool: "default", State: "ready", Busy: 60, MaxInFlight: 64, Shards: 2, Late: 200 * time.Millisecond},
		observe.WorkerDraining{}, observe.WorkerDeregistered{}, observe.WorkerFenced{}, observe.WorkerFailed{}, observe.EngineStarted{}, observe.EngineDied{}} {
		m.Count(e)
	}
	m.RecordRequest(1500*time.Millisecond, nil)
	m.RecordRequest(time.Second, fault.New(fault.Throttled, "slower"))
	m.RecordRequest(time.Second, fault.New(fault.Kind(99), "of no kind that is known"))
	m.RecordTokens(12, 100, 0)
	m.RecordTokens(0, 0, 30)
	q := memory.NewQueues(clock.System{})
	for _, name := range []string{"tasks", queue.DeadLetterQueue("tasks")} {
		if err := q.Send(t.Context(), name, [][]byte{[]byte("a"), []byte("b")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.Receive(t.Context(), "tasks", 1, time.Minute, 0); err != nil {
		t.Fatal(err)
	}
	m.TrackQueueDepths(q, "tasks")
	st := run.New(id)
	st.Phase, st.Items, st.Shards, st.NextShard, st.Counts = run.Running, 1000, 4, 2, shard.Counts{OK: 250, Failed: 6, CompletionTokens: 77}
	st.Done.Set.Add(0)
	m.RecordScan(observe.Scan{Runs: []run.State{st}, IsDead: func(b health.Heartbeat) bool { return b.Worker == "d" }, Heartbeats: []health.Heartbeat{
		{Worker: "a", Pool: "default", State: health.Ready, Load: health.Load{InFlight: 60}},
		{Worker: "b", Pool: "default", State: health.Ready, Load: health.Load{InFlight: 4}},
		{Worker: "d", Pool: "default", State: health.Ready, Load: health.Load{InFlight: 9}},
		{Worker: "g", Pool: "default", State: health.Gone}}})
	m.AddServerSource(func() []observe.Server {
		return []observe.Server{{Name: "http://a", Up: true, InFlight: 40, Limit: 64}, {Name: "http://b", InFlight: 3}}
	})
	m.AddServerSource(func() []observe.Server { return []observe.Server{{Name: "http://a", Up: true, InFlight: 2, Limit: 6}} })
	return m
}

func TestNamesKeepToTheRulesOfPrometheus(t *testing.T) {
	t.Parallel()
	m := busy(t)
	m.Documents(memory.NewDocuments()).Ping(t.Context())
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestWhatHappenedIsCounted(t *testing.T) {
	t.Parallel()
	text := scrape(t, busy(t))
	for _, line := range []string{
		`rollout_items_total{class="answered"} 250`, `rollout_items_total{class="too_long"} 5`, `rollout_items_total{class="poison"} 1`,
		`rollout_items_total{class="engine"} 0`, // there before the first, for alerts
		`rollout_tokens_total{kind="prompt"} 12`, `rollout_tokens_total{kind="completion"} 100`, `rollout_tokens_total{kind="wasted"} 30`,
		`rollout_requests_total{code="ok"} 1`, `rollout_requests_total{code="throttled"} 1`, `rollout_requests_total{code="canceled"} 1`,
		`rollout_request_duration_seconds_bucket{le="1"} 0`, `rollout_request_duration_seconds_bucket{le="2.5"} 1`,
		`rollout_shard_transitions_total{transition="committed"} 1`, `rollout_shard_transitions_total{transition="sealed"} 1`,
		`rollout_shard_transitions_total{transition="lost"} 1`, `rollout_checkpoint_bytes_total 1000`, `rollout_result_bytes_total 5000`,
		`rollout_run_transitions_total{phase="completed",transition="ended"} 1`,
		`rollout_worker_transitions_total{transition="fenced"} 1`, `rollout_engine_transitions_total{transition="died"} 1`,
		`rollout_requests_in_flight{pool="default"} 60`, `rollout_requests_in_flight_limit{pool="default"} 64`, `rollout_shards_held{pool="default"} 2`,
		`rollout_heartbeat_late_seconds_bucket{le="0.3"} 1`, `rollout_engine_ready{pool="default"} 1`,
		`rollout_open_runs{phase="running"} 1`, `rollout_run_phase{phase="running",run="` + string(id) + `"} 1`,
		`rollout_run_items{run="` + string(id) + `",state="answered"} 250`, `rollout_run_shards{run="` + string(id) + `",state="done"} 1`,
		`rollout_run_tokens{kind="completion",run="` + string(id) + `"} 77`,
		`rollout_workers{pool="default",state="ready"} 2`, `rollout_workers{pool="default",state="dead"} 1`, `rollout_pool_requests_in_flight{pool="default"} 64`,
		`rollout_queue_messages{queue="tasks",state="visible"} 1`, `rollout_queue_messages{queue="tasks",state="hidden"} 1`, `rollout_queue_dead_letters{queue="tasks"} 2`,
		`rollout_server_up{server="http://a"} 1`, `rollout_server_up{server="http://b"} 0`,
		`rollout_server_requests_in_flight{server="http://a"} 42`, `rollout_server_requests_limit{server="http://a"} 70`,
		`go_goroutines `, `process_open_fds `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("there is no %s", line)
		}
	}
	if strings.Contains(text, `rollout_server_requests_limit{server="http://b"}`) {
		t.Error("a server without a limit of its own has one")
	}
	if strings.Contains(text, `state="gone"`) {
		t.Error("workers that ended in order are told")
	}
}

// scrape is what the handler answers.
func scrape(t *testing.T, m *meter.Meter) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	b, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v", w.Code, err)
	}
	return string(b)
}

// An installation with a thousand open runs does not blow up who scrapes it.
func TestOnlySoManyRunsAreToldOneByOne(t *testing.T) {
	t.Parallel()
	m := meter.New()
	var runs []run.State
	for n := range 1000 {
		st := run.New(identity.RunID(fmt.Sprintf("%026d", n)))
		st.StartedAt = time.Unix(int64(n), 0)
		runs = append(runs, st)
	}
	m.RecordScan(observe.Scan{Runs: runs})
	text := scrape(t, m)
	if n := strings.Count(text, "rollout_run_phase{"); n != 50 {
		t.Errorf("%d runs are told", n)
	}
	if !strings.Contains(text, `rollout_open_runs{phase="planning"} 1000`) || !strings.Contains(text, fmt.Sprintf(`run="%026d"`, 999)) {
		t.Error("the sum, or the newest, is missing")
	}
	m.RecordScan(observe.Scan{})
	if strings.Contains(scrape(t, m), "rollout_run_phase{") {
		t.Error("a run that has ended is still told")
	}
}

// An item costs a few additions and no memory: at 25 µs a sample, 1 % is
// 250 ns.
func BenchmarkAnItem(b *testing.B) {
	m := meter.New()
	b.ReportAllocs()
	for b.Loop() {
		m.RecordRequest(1500*time.Millisecond, nil)
		m.RecordTokens(12, 100, 0)
	}
}

func TestAnItemTakesNoMemory(t *testing.T) {
	m := meter.New()
	if n := testing.AllocsPerRun(100, func() { m.RecordRequest(time.Second, nil); m.RecordTokens(12, 100, 0) }); n > 0 {
		t.Errorf("%v allocations an item", n)
	}
}
