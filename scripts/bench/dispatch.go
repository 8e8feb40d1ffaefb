package main

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"time"

	"rollout/functions/coordinate"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	drivers "rollout/shared/memory"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Bounds of a measured part of a run: answered shards before it, in it, and about how
// many at once.
const (
	dispatchWarmUp  = 5_000
	dispatchAnswers = 50_000
	dispatchBatch   = 120
)

// dispatchShape is a plan and the constraints under which its shards are sent: of
// which chain and variant shard n of shards is.
type dispatchShape struct {
	name string
	schedule.Constraints
	of func(n, shards int) (chain, variant int)
}

// dispatchShapes are the measured ones: the first is the baseline.
func dispatchShapes() []dispatchShape {
	leases := schedule.Constraints{Chains: true, MaxInFlightByVariant: 12}
	return []dispatchShape{
		{"unconstrained", schedule.Constraints{}, func(int, int) (int, int) { return 0, 0 }},
		{"chains-in-turns", leases, func(n, _ int) (int, int) { return n%1000/20 + 1, n % 20 }},
		{"chains-in-blocks", leases, func(n, shards int) (int, int) {
			k := n / max(1, shards/10_000) % 1000
			return k/20 + 1, k % 20
		}},
		{"tasks", leases, func(n, _ int) (int, int) { return n/100 + 1, n / 5 % 20 }}, // 5 replications of 20 variants
		{"short-chains", leases, func(n, _ int) (int, int) { return n/2 + 1, n / 2 % 20 }},
	}
}

// dispatch measures the CPU time of a coordinator for a shard of a run of l.n shards,
// with and without constraints, over stores in memory: reading what it needs of the
// plan, deciding, saving, and sending work. Work is answered at once.
func dispatch(ctx context.Context, l *runner) error {
	var baseline float64
	for _, shape := range dispatchShapes() {
		d, err := newDispatched(ctx, shape, l.n)
		if err != nil {
			return err
		}
		if _, err := d.answer(ctx, min(dispatchWarmUp, l.n/4)); err != nil {
			return err
		}
		runtime.GC() // not of the shard tables
		before, err := cpuTime()
		if err != nil {
			return err
		}
		n, err := d.answer(ctx, min(dispatchAnswers, l.n/2))
		if err != nil {
			return err
		}
		after, err := cpuTime()
		if err != nil {
			return err
		}
		name, cost := "Dispatch/"+shape.name, perSample(after-before, n)
		l.report.add(name, "cpu-µs/shard", cost)
		if baseline == 0 {
			baseline = cost
			continue
		}
		l.report.add(name, "×unconstrained", cost/baseline)
	}
	return nil
}

// dispatched is a run that is coordinated, and whose workers answer at once.
type dispatched struct {
	*coordinate.Coordinator
	run   identity.RunID
	state run.State // as saved last
	rand  *rand.Rand
}

// newDispatched plans a run of so many shards, with one item each.
func newDispatched(ctx context.Context, shape dispatchShape, shards int) (*dispatched, error) {
	c := clock.System{}
	ports := host.Ports{Blobs: drivers.NewBucket(c), Docs: drivers.NewDocuments(), Queues: nowhere{drivers.NewQueues(c)},
		Clock: c, Log: slog.New(slog.DiscardHandler), Source: "bench"}
	d := &dispatched{run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", rand: rand.New(rand.NewPCG(1, 2))}
	k, err := kind.Table{}.Of(config.KindBatch)
	if err != nil {
		return nil, err
	}
	k.Name, k.Constraints = "measured", func(config.Run) schedule.Constraints { return shape.Constraints }
	m := record.Manifest{Schema: record.Schema, Run: d.run, Kind: k.Name, CreatedAt: c.Now(), Dialect: "plain",
		Config: config.DefaultRun(), ModelURI: "mock", ModelID: identity.Model("mock", "").String(), Pool: "default"}
	now := c.Now()
	worker := health.Heartbeat{Schema: record.Schema, Worker: "w", Pool: m.Pool, At: now, DueAt: now.Add(time.Hour),
		MaxInFlight: 1000}
	plan, err := d.plan(ctx, ports.Blobs, shape, shards)
	if err != nil {
		return nil, err
	}
	for key, v := range map[string]any{record.ManifestKey(d.run): m, record.PlanKey(d.run): plan,
		record.HeartbeatKey(worker.Worker): worker} {
		if _, err := ports.Docs.Create(ctx, key, record.Encode(v)); err != nil {
			return nil, err
		}
	}
	deployment := config.DefaultDeployment()
	d.Coordinator = coordinate.New(ports, input.NewIndex(ports.Blobs, ports.Docs), coordinate.Options{
		Timings: host.Timings(deployment.Health), Grace: time.Second, Kinds: kind.Table{}.With(k),
		Hooks: coordinate.Hooks{OnSaved: func(s run.State) { d.state = s }}})
	_, err = d.Apply(ctx, d.run, []run.Event{{Kind: run.Reevaluate}})
	return d, err
}

// plan writes shard tables of at most rangeShards rows, and returns the plan.
func (d *dispatched) plan(ctx context.Context, bucket blob.Store, shape dispatchShape,
	shards int) (record.Plan, error) {
	const rangeShards = 1 << 14
	doc := record.Plan{Schema: record.Schema}
	for doc.Shards < shards {
		e := record.IndexEntry{Range: doc.Merged, FirstShard: doc.Shards, FirstItem: doc.Items,
			Shards: min(rangeShards, shards-doc.Shards)}
		e.Items, e.Lines = uint64(e.Shards), uint64(e.Shards)
		var table bytes.Buffer
		w := shardtable.NewWriter(&table, shardtable.Header{MaxItems: 1})
		for i := range e.Shards {
			chain, variant := shape.of(doc.Shards+i, shards)
			row := shardtable.Row{Offset: uint64(i), Length: 1, FirstItem: uint64(i), FirstLine: uint64(i), Items: 1, Lines: 1,
				Chain: uint32(chain), Variant: uint32(variant)}
			if err := w.Append(row); err != nil {
				return doc, err
			}
		}
		if err := w.Flush(); err != nil {
			return doc, err
		}
		for key, body := range map[string][]byte{record.ShardTableKey(d.run, e.Range): table.Bytes(),
			record.IndexKey(d.run, e.Range): record.Encode(e)} {
			if _, err := bucket.Put(ctx, key, bytes.NewReader(body), blob.PutOptions{}); err != nil {
				return doc, err
			}
		}
		doc.AddRange(0, record.RangeResult{Shards: e.Shards, Items: e.Items, Lines: e.Lines})
		doc.Total++
	}
	doc.Ranges = []record.Ranges{{Key: "prompts/p.jsonl", Version: "1", Size: int64(shards), Count: doc.Total}}
	return doc, nil
}

// answer has some of the shards in flight done, in batches, until about n are. It
// returns how many are.
func (d *dispatched) answer(ctx context.Context, n int) (done int, err error) {
	for done < n {
		var events []run.Event
		flying := d.state.InFlight.Len()
		for _, c := range d.state.InFlight.Chunks {
			for i := c.Lo; i < c.Hi; i++ {
				if d.rand.IntN(flying) < dispatchBatch {
					events = append(events, run.Event{Kind: run.ShardDone, Shard: i, Counts: shard.Counts{OK: 1}})
				}
			}
		}
		if _, err := d.Apply(ctx, d.run, events); err != nil {
			return done, err
		}
		done += len(events)
	}
	return done, nil
}

// nowhere are queues that drop what is sent.
type nowhere struct{ *drivers.Queues }

// Send drops the bodies.
func (nowhere) Send(context.Context, string, [][]byte, time.Duration) error { return nil }
