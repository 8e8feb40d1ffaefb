package status

import (
	"context"
	"maps"
	"slices"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// Reader reads an installation's documents and queue depths. It never writes
// and is safe for concurrent use.
type Reader struct {
	ports   host.Ports
	deploy  config.Deployment
	profile cloud.Profile
	pools   []config.Pool // all that the config declares
	timings health.Timings
}

// NewReader returns the reader of a deployment at a place of that profile.
func NewReader(p host.Ports, d config.Deployment, at cloud.Profile) *Reader {
	return &Reader{ports: p, deploy: d, profile: at, pools: d.Pools, timings: host.Timings(d.Health)}
}

// Manifests returns the manifests of all runs, in the order of their ids.
func (r *Reader) Manifests(ctx context.Context) ([]record.Manifest, error) {
	var out []record.Manifest
	for d, err := range document.All(ctx, r.ports.Docs, record.ManifestPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the runs")
		}
		m, err := host.DecodeManifest(d)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Progress reads the documents of one run; NotFound if there is no such run.
// workers are those that Workers returned.
func (r *Reader) Progress(ctx context.Context, id identity.RunID, workers []WorkerStatus) (Progress, error) {
	m, err := host.LoadManifest(ctx, r.ports.Docs, id)
	if err != nil {
		return Progress{}, err
	}
	all, err := r.ProgressOf(ctx, []record.Manifest{m}, workers)
	if err != nil {
		return Progress{}, err
	}
	if all[0].State.Phase.Ended() {
		all[0].Rollout, err = r.endedRollout(ctx, all[0])
	}
	return all[0], err
}

// docsPerRun is how many documents of a run Progress needs at most: where nothing is told, it
// needs no notifications.
const docsPerRun = 4

// ProgressOf reads the documents of the runs with these manifests and returns
// their progress in the same order. It reads many runs at once. What an ended rollout came
// to is left out: it takes a read for each.
func (r *Reader) ProgressOf(ctx context.Context, ms []record.Manifest, workers []WorkerStatus) ([]Progress, error) {
	out := make([]Progress, 0, len(ms))
	for part := range slices.Chunk(ms, document.MaxKeys/docsPerRun) {
		part, err := r.progressOfPart(ctx, part, workers)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// progressOfPart is ProgressOf for at most document.MaxKeys / docsPerRun runs.
func (r *Reader) progressOfPart(ctx context.Context, ms []record.Manifest, workers []WorkerStatus) ([]Progress, error) {
	keys := make([]string, 0, docsPerRun*len(ms))
	for _, m := range ms {
		keys = append(keys, record.CoordinatorKey(m.Run), record.PlanKey(m.Run), record.ControlKey(m.Run))
		if r.deploy.TellsEvents() {
			keys = append(keys, record.NotifyKey(record.RunSubject(m.Run)))
		}
	}
	docs, err := r.ports.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the runs' progress")
	}
	out := make([]Progress, len(ms))
	for i, m := range ms {
		p := Progress{Hints: r.profile.Hints, Manifest: m, State: run.New(m.Run), Workers: workers,
			Deployment: r.deploy}
		// A kind of a later version has no traits: its run is shown as a batch.
		p.Kind, _ = kind.Table{}.Of(m.Kind)
		for k, v := range []any{&p.State, &p.Plan, &p.Control, &p.Notifications}[:len(keys)/len(ms)] {
			if err := decodeDoc(docs[len(keys)/len(ms)*i+k], v); err != nil {
				return nil, err
			}
		}
		if p.CheckpointedRows, err = r.checkpointedRows(ctx, p); err != nil {
			return nil, err
		}
		if p.Snapshot, err = r.snapshot(ctx, p); err != nil {
			return nil, err
		}
		if p.Rollout, err = r.rollout(ctx, p); err != nil {
			return nil, err
		}
		if p.Fleet, err = r.fleet(ctx, p); err != nil {
			return nil, err
		}
		out[i] = p
	}
	if err := r.setMachines(ctx, out); err != nil {
		return nil, err
	}
	shares, err := r.shares(ctx, out)
	for i := range out {
		out[i].Shares = shares
	}
	return out, err
}

// fleet reads what the cloud reports about the machines of a pool that the run
// needs. It reads only where that may explain why no worker of the pool is alive.
func (r *Reader) fleet(ctx context.Context, p Progress) (f record.Fleet, err error) {
	if !r.profile.Capabilities.ManagedFleet || p.Manifest.Refused != "" || p.State.Phase.Ended() {
		return f, nil
	}
	for _, pool := range p.Manifest.NeededPools(p.State) {
		if !AliveIn(p.Workers, pool) {
			_, _, err = host.Load(ctx, r.ports.Docs, record.FleetKey(pool), &f)
			return f, fault.Wrap(err, "read the fleet of pool %s", pool)
		}
	}
	return f, nil
}

// snapshot returns the last snapshot of a training; nil for other kinds.
func (r *Reader) snapshot(ctx context.Context, p Progress) (*shard.Snapshot, error) {
	if !p.Kind.Trains {
		return nil, nil
	}
	var d shard.Doc
	_, _, err := host.Load(ctx, r.ports.Docs, identity.ShardKey(p.Manifest.Run, 0), &d)
	return d.Snapshot, err
}

// maxCheckpoints bounds the open shards whose checkpoints are counted.
const maxCheckpoints = 256

// checkpointedRows counts the rows in checkpoints of open shards that no worker
// holds.
func (r *Reader) checkpointedRows(ctx context.Context, p Progress) (uint64, error) {
	if p.Manifest.Refused != "" || p.State.Phase.Ended() {
		return 0, nil
	}
	held := map[int]bool{}
	for _, w := range p.Workers {
		for _, h := range w.Holds {
			if w.Alive && h.Run == p.Manifest.Run && h.Rows > 0 {
				held[h.Shard] = true
			}
		}
	}
	var n uint64
	docs, err := r.Shards(ctx, p.State.Run, mayHaveCheckpoints(p.State, r.ports.Clock.Now()), maxCheckpoints)
	for _, d := range docs {
		if d.Checkpoint != nil && !held[d.Shard] {
			n += uint64(max(0, d.Counts.OK+d.Counts.Failed))
		}
	}
	return n, err
}

// minCheckpointAge is how long ago a shard must have been sent for its
// checkpoint to be looked up. A shorter age would cost a fast run more than its
// coordination: hundreds of documents are read, several times a second.
const minCheckpointAge = 10 * time.Second

// mayHaveCheckpoints returns the dispatched shards that may have rows in a
// checkpoint: those sent at least minCheckpointAge ago, those sent again, and
// all shards of a run that is not running.
func mayHaveCheckpoints(st run.State, now time.Time) (ranges []interval.Range) {
	for _, c := range st.InFlight.Chunks {
		if st.Phase != run.Running || c.Generation > 0 || now.Sub(c.SentAt) >= minCheckpointAge {
			ranges = append(ranges, c.Range)
		}
	}
	return ranges
}

// Shards reads the documents of the first shards of the ranges, at most limit.
// A shard without a document is Pending.
func (r *Reader) Shards(ctx context.Context, id identity.RunID, ranges []interval.Range,
	limit int) ([]shard.Doc, error) {
	var out []shard.Doc
	for part := range slices.Chunk(firstShards(ranges, limit), document.MaxKeys) {
		keys := make([]string, len(part))
		for i, n := range part {
			keys[i] = identity.ShardKey(id, n)
		}
		docs, err := r.ports.Docs.GetMany(ctx, keys)
		if err != nil {
			return nil, fault.Wrap(err, "read the shards of run %s", id)
		}
		for i, raw := range docs {
			d := shard.New(id, part[i])
			if err := decodeDoc(raw, &d); err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	return out, nil
}

func firstShards(ranges []interval.Range, limit int) (numbers []int) {
	for _, r := range ranges {
		for n := r.Lo; n < r.Hi && len(numbers) < limit; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// QueueStatus is how many messages a queue has.
type QueueStatus struct {
	Queue   string `json:"queue"`
	Waiting int    `json:"waiting"` // messages that can be received now
	Hidden  int    `json:"hidden"`  // messages in processing, or delayed
	Dead    int    `json:"dead"`    // its dead letters
}

// Queues returns the depths of the functions' queues and of the pools' work
// queues, by name. Pools without a queue, and "", are skipped: a cloud has
// queues only for the pools of its config, whatever workers and runs name.
// Queues returns an empty list if the store cannot count messages.
func (r *Reader) Queues(ctx context.Context, pools []string) ([]QueueStatus, error) {
	out := []QueueStatus{}
	d, ok := r.ports.Queues.(queue.Depther)
	if !ok {
		return out, nil
	}
	names := map[string]bool{host.CoordinateQueue: true, host.TaskQueue: true, host.PlanQueue: true}
	for _, pool := range pools {
		if pool != "" && r.hasQueue(pool) { // a refused run has no pool
			names[host.WorkQueue(pool)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		q := QueueStatus{Queue: name}
		var err error
		if q.Waiting, q.Hidden, err = d.Depth(ctx, name); err != nil {
			return out, fault.Wrap(err, "count the messages of queue %s", name)
		}
		visible, hidden, err := d.Depth(ctx, queue.DeadLetterQueue(name))
		if err != nil {
			return out, fault.Wrap(err, "count the dead letters of queue %s", name)
		}
		q.Dead = visible + hidden
		out = append(out, q)
	}
	return out, nil
}

// hasQueue reports whether the pool has a work queue. A local installation has
// a queue for every name.
func (r *Reader) hasQueue(pool string) bool {
	return !r.profile.Capabilities.DeclaredQueues ||
		slices.ContainsFunc(r.pools, func(p config.Pool) bool { return p.Name == pool })
}

// decodeDoc decodes a document into v. It leaves v as it is if the document is
// absent.
func decodeDoc(d document.Doc, v any) error {
	if d.Revision == "" {
		return nil
	}
	return record.Decode(d.Value, v, "document "+d.Key)
}
