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

// filled returns a meter that has recorded everything once.
func filled(t *testing.T) *meter.Meter {
	t.Helper()
	m := meter.New()
	c := observe.Claim{Run: id, Shard: 1, Attempt: 1, Worker: "w"}
	counts := shard.Counts{OK: 250, Failed: 6, ByClass: map[string]int{"too_long": 5, "poison": 1}}
	for _, e := range []observe.Event{
		observe.RunSubmitted{}, observe.RunRefused{}, observe.RunPlanned{}, observe.RunPhase{},
		observe.RunEnded{Phase: "completed"},
		observe.ShardClaimed{Claim: c}, observe.ShardCheckpoint{Claim: c, Bytes: 1000},
		observe.ShardDone{Claim: c, Counts: counts, Bytes: 5000},
		observe.ShardDone{Claim: c, Sealed: fault.Expired}, observe.ShardLost{}, observe.ShardReleased{Claim: c},
		observe.WorkerRegistered{Pool: "default"},
		observe.WorkerHeartbeat{
			Pool: "default", State: "ready", Busy: 60, MaxInFlight: 64, Shards: 2, Late: 200 * time.Millisecond,
		},
		observe.WorkerDraining{}, observe.WorkerDeregistered{}, observe.WorkerFenced{}, observe.WorkerFailed{},
		observe.EngineStarted{}, observe.EngineDied{},
	} {
		m.Count(e)
	}
	m.OnlineBegan("default")
	m.OnlineAnswered("default", 300*time.Millisecond)
	m.OnlineEnded("default", 200, true, true)
	m.OnlineBegan("default")
	m.OnlineEnded("default", 0, false, false)
	m.OnlineBegan("default")
	m.RecordRequest(1500*time.Millisecond, nil)
	m.RecordRequest(time.Second, fault.New(fault.Throttled, "slower"))
	m.RecordRequest(time.Second, fault.New(fault.Kind(99), "of an unknown kind"))
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
	st.Phase, st.Items, st.Shards, st.NextShard = run.Running, 1000, 4, 2
	st.Counts = shard.Counts{OK: 250, Failed: 6, CompletionTokens: 77}
	st.Done.Set.Add(0)
	isDead := func(b health.Heartbeat) bool { return b.Worker == "d" }
	m.RecordScan(observe.Scan{Runs: []run.State{st}, IsDead: isDead, Heartbeats: []health.Heartbeat{
		{Worker: "a", Pool: "default", State: health.Ready, Load: health.Load{InFlight: 60,
			Limit: &health.Limit{Requests: 600, RequestsFrom: "headers", UsedRequests: 200, Waiting: 3}}},
		{Worker: "b", Pool: "default", State: health.Ready, Load: health.Load{InFlight: 4,
			Limit: &health.Limit{Requests: 600, RequestsFrom: "headers", UsedRequests: 100, Tokens: 9, TokensFrom: "config"}}},
		{Worker: "d", Pool: "default", State: health.Ready, Load: health.Load{InFlight: 9}},
		{Worker: "g", Pool: "default", State: health.Gone},
	}})
	m.AddServerSource(func() []observe.Server {
		return []observe.Server{{Name: "http://a", Up: true, InFlight: 40, Limit: 64}, {Name: "http://b", InFlight: 3}}
	})
	m.AddServerSource(func() []observe.Server {
		return []observe.Server{{Name: "http://a", Up: true, InFlight: 2, Limit: 6}}
	})
	return m
}

func TestMetricNamesFollowPrometheusConventions(t *testing.T) {
	t.Parallel()
	m := filled(t)
	m.Documents(memory.NewDocuments()).Ping(t.Context())
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsHaveRecordedValues(t *testing.T) {
	t.Parallel()
	text := scrape(t, filled(t))
	for _, line := range []string{
		`rollout_items_total{class="answered"} 250`,
		`rollout_items_total{class="too_long"} 5`,
		`rollout_items_total{class="poison"} 1`,
		`rollout_items_total{class="engine"} 0`, // exists before the first failure, for alerts
		`rollout_tokens_total{kind="prompt"} 12`,
		`rollout_tokens_total{kind="completion"} 100`,
		`rollout_tokens_total{kind="wasted"} 30`,
		`rollout_online_requests_total{code="200",pool="default"} 1`,
		`rollout_online_requests_total{code="cut_off",pool="default"} 1`,
		`rollout_online_requests_in_flight{pool="default"} 1`,
		`rollout_online_requests_waiting{pool="default"} 1`,
		`rollout_online_first_byte_seconds_bucket{pool="default",le="0.5"} 1`,
		`rollout_requests_total{code="ok"} 1`,
		`rollout_requests_total{code="throttled"} 1`,
		`rollout_requests_total{code="canceled"} 1`,
		`rollout_request_duration_seconds_bucket{le="1"} 0`,
		`rollout_request_duration_seconds_bucket{le="2.5"} 1`,
		`rollout_shard_transitions_total{transition="committed"} 1`,
		`rollout_shard_transitions_total{transition="sealed"} 1`,
		`rollout_shard_transitions_total{transition="lost"} 1`,
		`rollout_checkpoint_bytes_total 1000`,
		`rollout_result_bytes_total 5000`,
		`rollout_run_transitions_total{phase="completed",transition="ended"} 1`,
		`rollout_worker_transitions_total{transition="fenced"} 1`,
		`rollout_engine_transitions_total{transition="died"} 1`,
		`rollout_requests_in_flight{pool="default"} 60`,
		`rollout_requests_in_flight_limit{pool="default"} 64`,
		`rollout_shards_held{pool="default"} 2`,
		`rollout_heartbeat_late_seconds_bucket{le="0.3"} 1`,
		`rollout_engine_ready{pool="default"} 1`,
		`rollout_open_runs{phase="running"} 1`,
		`rollout_run_phase{phase="running",run="` + string(id) + `"} 1`,
		`rollout_run_items{run="` + string(id) + `",state="answered"} 250`,
		`rollout_run_shards{run="` + string(id) + `",state="done"} 1`,
		`rollout_run_tokens{kind="completion",run="` + string(id) + `"} 77`,
		`rollout_workers{pool="default",state="ready"} 2`,
		`rollout_workers{pool="default",state="dead"} 1`,
		`rollout_pool_requests_in_flight{pool="default"} 64`,
		`rollout_pool_limit_per_minute{pool="default",resource="requests",source="headers"} 600`,
		`rollout_pool_limit_per_minute{pool="default",resource="tokens",source="config"} 9`,
		`rollout_pool_limit_used{pool="default",resource="requests",source="headers"} 300`,
		`rollout_pool_limit_waiting_requests{pool="default",resource="requests",source="headers"} 3`,
		`rollout_queue_messages{queue="tasks",state="visible"} 1`,
		`rollout_queue_messages{queue="tasks",state="hidden"} 1`,
		`rollout_queue_dead_letters{queue="tasks"} 2`,
		`rollout_server_up{server="http://a"} 1`,
		`rollout_server_up{server="http://b"} 0`,
		`rollout_server_requests_in_flight{server="http://a"} 42`,
		`rollout_server_requests_limit{server="http://a"} 70`,
		`go_goroutines `, `process_open_fds `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("the metric %s is missing", line)
		}
	}
	if strings.Contains(text, `rollout_server_requests_limit{server="http://b"}`) {
		t.Error("a server without its own limit has the metric of a limit")
	}
	if strings.Contains(text, `state="gone"`) {
		t.Error("the metrics include deregistered workers")
	}
}

// scrape returns the response of the handler.
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

// An installation with a thousand open runs must not overload a scraper.
func TestMetricsOfSingleRunsAreLimited(t *testing.T) {
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
		t.Errorf("%d runs have their own metrics, want 50", n)
	}
	if !strings.Contains(text, `rollout_open_runs{phase="planning"} 1000`) ||
		!strings.Contains(text, fmt.Sprintf(`run="%026d"`, 999)) {
		t.Error("the sum or the newest run is missing")
	}
	m.RecordScan(observe.Scan{})
	if strings.Contains(scrape(t, m), "rollout_run_phase{") {
		t.Error("an ended run still has metrics")
	}
}

// BenchmarkItem measures the metrics of one item. They should take less than 250 ns: 1 % of
// the 25 µs that an item takes.
func BenchmarkItem(b *testing.B) {
	m := meter.New()
	b.ReportAllocs()
	for b.Loop() {
		m.RecordRequest(1500*time.Millisecond, nil)
		m.RecordTokens(12, 100, 0)
	}
}

func TestItemMetricsAllocateNothing(t *testing.T) {
	m := meter.New()
	n := testing.AllocsPerRun(100, func() {
		m.RecordRequest(time.Second, nil)
		m.RecordTokens(12, 100, 0)
	})
	if n > 0 {
		t.Errorf("%v allocations per item, want 0", n)
	}
}
