package meter

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// maxRuns is the most open runs with metrics of their own: those that started last. The
// metrics by phase include all runs.
const maxRuns = 50

// scrapeTime is the time limit of reading the depths of all queues.
const scrapeTime = 3 * time.Second

// scan has the gauges of the current state of open runs, of the installation's workers and
// of queues.
type scan struct {
	mu     sync.Mutex
	runs   []run.State // the newest, at most maxRuns
	phases map[run.Phase]int
	pools  map[poolState]int
	busy   map[string]int // by pool
	limits map[poolLimit]limited
	queues queue.Depther
	names  []string
}

// poolState is a pool and a state of its workers.
type poolState struct{ pool, state string }

// poolLimit is a pool, what its limit counts, and where that comes from.
type poolLimit struct{ pool, resource, from string }

// limited is a limit of a minute, what was used of it in the last one, and how many
// requests waited for it.
type limited struct{ limit, used, waiting int64 }

// addLimit adds what a living worker reports of its pool's limit.
func addLimit(to map[poolLimit]limited, pool string, l *health.Limit) {
	if l == nil {
		return
	}
	for _, v := range []struct {
		resource, from string
		limit, used    int64
	}{{"requests", l.RequestsFrom, l.Requests, l.UsedRequests}, {"tokens", l.TokensFrom, l.Tokens, l.UsedTokens}} {
		if v.limit > 0 {
			k := poolLimit{pool, v.resource, v.from}
			to[k] = limited{v.limit, to[k].used + v.used, to[k].waiting + int64(l.Waiting)}
		}
	}
}

// dead is the state of a worker whose heartbeat has expired.
const dead = "dead"

// set replaces the state by the result of a scan.
func (s *scan) set(x observe.Scan) {
	phases := map[run.Phase]int{}
	for _, r := range x.Runs {
		phases[r.Phase]++
	}
	runs := slices.Clone(x.Runs)
	slices.SortFunc(runs, func(a, b run.State) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.Run, b.Run))
	})
	pools, busy, limits := map[poolState]int{}, map[string]int{}, map[poolLimit]limited{}
	for _, b := range x.Heartbeats {
		state := string(b.State)
		switch {
		case b.State == health.Gone:
			continue
		case x.IsDead(b):
			state = dead
		default:
			busy[b.Pool] += b.Load.InFlight
			addLimit(limits, b.Pool, b.Load.Limit)
		}
		pools[poolState{b.Pool, state}]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs, s.phases, s.pools, s.busy, s.limits = runs[:min(len(runs), maxRuns)], phases, pools, busy, limits
}

// TrackQueueDepths adds gauges of the messages and the dead letters of the named queues, if
// q is a queue.Depther.
func (m *Meter) TrackQueueDepths(q queue.Queues, names ...string) {
	m.scan.mu.Lock()
	defer m.scan.mu.Unlock()
	m.scan.queues, _ = q.(queue.Depther)
	m.scan.names = names
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

// Metrics of scan.
var (
	openRuns = describe("open_runs", "Runs that have not ended, by phase.", "phase")
	runItems = describe("run_items",
		"Items of an open run: planned, and, of done shards, answered and failed.", "run", "state")
	runShards = describe("run_shards", "Shards of an open run: planned, dispatched, done.", "run", "state")
	runTokens = describe("run_tokens", "Tokens of an open run's done shards.", "run", "kind")
	runPhase  = describe("run_phase", "1 for the current phase of an open run.", "run", "phase")
	poolSize  = describe("workers", "Workers that have a heartbeat, by state.", "pool", "state")
	poolBusy  = describe("pool_requests_in_flight",
		"Requests of all live workers of the pool to their engines.", "pool")
	poolLimited = describe("pool_limit_per_minute",
		"What the workers of the pool together may use in a minute: requests or tokens, and where the limit comes from.",
		"pool", "resource", "source")
	poolUsed = describe("pool_limit_used",
		"What they used in the last minute of a limit.", "pool", "resource", "source")
	poolWaiting = describe("pool_limit_waiting_requests",
		"Requests that waited for a limit at once, since the last heartbeats.", "pool", "resource", "source")
	queueDepth = describe("queue_messages",
		"Messages in a queue: visible ones, and hidden ones, which are being handled.", "queue", "state")
	deadDepth = describe("queue_dead_letters", "Messages that could not be handled.", "queue")
)

// Describe implements prometheus.Collector.
func (s *scan) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		openRuns, runItems, runShards, runTokens, runPhase, poolSize, poolBusy, poolLimited, poolUsed, poolWaiting,
		queueDepth, deadDepth,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scan) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s.mu.Lock()
	runs, phases, pools, busy, limits, queues, names := s.runs, s.phases, s.pools, s.busy, s.limits, s.queues, s.names
	s.mu.Unlock()
	for phase, n := range phases {
		gauge(openRuns, float64(n), string(phase))
	}
	for _, r := range runs {
		id := string(r.Run)
		gauge(runPhase, 1, id, string(r.Phase))
		gauge(runItems, float64(r.Items), id, "planned")
		gauge(runItems, float64(r.Counts.OK), id, answered)
		gauge(runItems, float64(r.Counts.Failed), id, "failed")
		gauge(runShards, float64(r.Shards), id, "planned")
		gauge(runShards, float64(r.Sent()), id, "dispatched")
		gauge(runShards, float64(r.Done.Set.Len()), id, "done")
		gauge(runTokens, float64(r.Counts.PromptTokens), id, "prompt")
		gauge(runTokens, float64(r.Counts.CompletionTokens), id, "completion")
		gauge(runTokens, float64(r.Counts.WastedTokens), id, "wasted")
	}
	for p, n := range pools {
		gauge(poolSize, float64(n), p.pool, p.state)
	}
	for pool, n := range busy {
		gauge(poolBusy, float64(n), pool)
	}
	for k, l := range limits {
		gauge(poolLimited, float64(l.limit), k.pool, k.resource, k.from)
		gauge(poolUsed, float64(l.used), k.pool, k.resource, k.from)
		gauge(poolWaiting, float64(l.waiting), k.pool, k.resource, k.from)
	}
	if queues == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime) // Collect has no context
	defer cancel()
	for _, name := range names {
		if visible, hidden, err := queues.Depth(ctx, name); err == nil {
			gauge(queueDepth, float64(visible), name, "visible")
			gauge(queueDepth, float64(hidden), name, "hidden")
		}
		if visible, hidden, err := queues.Depth(ctx, queue.DeadLetterQueue(name)); err == nil {
			gauge(deadDepth, float64(visible+hidden), name)
		}
	}
}
