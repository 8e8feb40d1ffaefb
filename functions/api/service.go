package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Service answers users. It is safe for concurrent use.
type Service struct {
	ports   host.Ports
	bucket  string // the deployment's name of it, part of run ids
	cloud   config.Cloud
	pools   []config.Pool // those that answer prompts
	timings health.Timings
	index   *input.Index
}

// New returns the service of a deployment.
func New(p host.Ports, d config.Deployment) *Service {
	return &Service{
		ports:   p.WithSource("api"),
		bucket:  d.Bucket,
		cloud:   d.Cloud,
		pools:   d.InferPools(),
		timings: host.Timings(d.Health),
		index:   input.NewIndex(p.Blobs, p.Docs),
	}
}

// List returns every run, the newest first.
func (s *Service) List(ctx context.Context) ([]Status, error) {
	workers, err := s.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return s.list(ctx, workers)
}

func (s *Service) list(ctx context.Context, workers []WorkerStatus) ([]Status, error) {
	var manifests []record.Manifest
	for d, err := range document.All(ctx, s.ports.Docs, record.ManifestPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the runs")
		}
		m, err := readManifest(d)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, m)
	}
	out := make([]Status, 0, len(manifests))
	for part := range slices.Chunk(manifests, document.MaxKeys/docsOfRun) {
		part, err := s.statuses(ctx, part, workers)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	slices.SortFunc(out, newestFirst)
	return out, nil
}

func newestFirst(a, b Status) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.Run, a.Run))
}

// Show returns one run; NotFound if there is none of that id.
func (s *Service) Show(ctx context.Context, id identity.RunID) (Status, error) {
	workers, err := s.Workers(ctx)
	if err != nil {
		return Status{}, err
	}
	return s.show(ctx, id, workers)
}

func (s *Service) show(ctx context.Context, id identity.RunID, workers []WorkerStatus) (Status, error) {
	p, err := s.progress(ctx, id, workers)
	if err != nil {
		return Status{}, err
	}
	return StatusOf(p, s.ports.Clock.Now()), nil
}

// progress reads what the documents say about one run.
func (s *Service) progress(ctx context.Context, id identity.RunID, workers []WorkerStatus) (Progress, error) {
	m, err := s.manifest(ctx, id)
	if err != nil {
		return Progress{}, err
	}
	all, err := s.progresses(ctx, []record.Manifest{m}, workers)
	if err != nil {
		return Progress{}, err
	}
	return all[0], nil
}

func (s *Service) statuses(ctx context.Context, ms []record.Manifest, workers []WorkerStatus) ([]Status, error) {
	all, err := s.progresses(ctx, ms, workers)
	now := s.ports.Clock.Now()
	out := make([]Status, len(all))
	for i, p := range all {
		out[i] = StatusOf(p, now)
	}
	return out, err
}

// docsOfRun is how many documents tell how far a run is.
const docsOfRun = 3

// progresses reads how far the runs are: at most document.MaxKeys / docsOfRun.
func (s *Service) progresses(ctx context.Context, ms []record.Manifest, workers []WorkerStatus) ([]Progress, error) {
	keys := make([]string, 0, docsOfRun*len(ms))
	for _, m := range ms {
		keys = append(keys, record.CoordinatorKey(m.Run), record.PlanKey(m.Run), record.ControlKey(m.Run))
	}
	docs, err := s.ports.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the runs' progress")
	}
	out := make([]Progress, len(ms))
	for i, m := range ms {
		p := Progress{Cloud: s.cloud, Manifest: m, State: run.New(m.Run), Workers: workers}
		for k, v := range []any{&p.State, &p.Plan, &p.Control} {
			if err := decodeDoc(docs[docsOfRun*i+k], v); err != nil {
				return nil, err
			}
		}
		if p.CheckpointedRows, err = s.checkpointedRows(ctx, p); err != nil {
			return nil, err
		}
		if p.Snapshot, err = s.snapshotOf(ctx, m); err != nil {
			return nil, err
		}
		if p.Fleet, err = s.fleet(ctx, p); err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// fleet reads what the cloud says of the machines of a run's pool, where that
// may be why nobody works on it.
func (s *Service) fleet(ctx context.Context, p Progress) (f record.Fleet, err error) {
	if s.cloud.Provider == "" || p.Manifest.Refused != "" || p.State.Phase.Ended() || anyAliveOf(p.Workers, p.Manifest.Pool) {
		return f, nil
	}
	_, _, err = host.Load(ctx, s.ports.Docs, record.FleetKey(p.Manifest.Pool), &f)
	return f, fault.Wrap(err, "look at the fleet of pool %s", p.Manifest.Pool)
}

// maxKept bounds the open shards whose checkpoints are counted.
const maxKept = 256

// checkpointedRows counts the rows that checkpoints hold of open shards in nobody's hands.
func (s *Service) checkpointedRows(ctx context.Context, p Progress) (uint64, error) {
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
	docs, err := s.shards(ctx, p.State.Run, first(maxKept, mayHaveCheckpoints(p.State, s.ports.Clock.Now())))
	for _, d := range docs {
		if d.Checkpoint != nil && !held[d.Shard] {
			n += uint64(max(0, d.Counts.OK+d.Counts.Failed))
		}
	}
	return n, err
}

// minCheckpointAge is how long a shard takes at most of which nobody need know how far it
// is. Looking at hundreds of documents, several times a second, would cost a
// fast run more than its coordination does.
const minCheckpointAge = 10 * time.Second

// mayHaveCheckpoints are the dispatched shards that may have rows in a checkpoint:
// those that were sent some time ago, or again, and all of a run that stands
// still.
func mayHaveCheckpoints(st run.State, now time.Time) (ranges []interval.Range) {
	for _, c := range st.InFlight.Chunks {
		if st.Phase != run.Running || c.Generation > 0 || now.Sub(c.SentAt) >= minCheckpointAge {
			ranges = append(ranges, c.Range)
		}
	}
	return ranges
}

// first are the first numbers of the ranges.
func first(most int, ranges []interval.Range) (numbers []int) {
	for _, r := range ranges {
		for n := r.Lo; n < r.Hi && len(numbers) < most; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// shards reads the documents of shards of a run; one that has none is Pending.
func (s *Service) shards(ctx context.Context, id identity.RunID, numbers []int) ([]shard.Doc, error) {
	var out []shard.Doc
	for part := range slices.Chunk(numbers, document.MaxKeys) {
		keys := make([]string, len(part))
		for i, n := range part {
			keys[i] = identity.ShardKey(id, n)
		}
		docs, err := s.ports.Docs.GetMany(ctx, keys)
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

func (s *Service) manifest(ctx context.Context, id identity.RunID) (record.Manifest, error) {
	if !id.Valid() {
		return record.Manifest{}, noSuchRun(id)
	}
	d, err := s.ports.Docs.Get(ctx, record.ManifestKey(id))
	if fault.Is(err, fault.NotFound) {
		return record.Manifest{}, noSuchRun(id)
	}
	if err != nil {
		return record.Manifest{}, fault.Wrap(err, "read run %s", id)
	}
	return readManifest(d)
}

func noSuchRun(id identity.RunID) error {
	return &fault.Error{Kind: fault.NotFound, Err: fault.New(fault.NotFound, "there is no run %.64q", string(id)),
		Remedy: "`rollout status` lists the runs"}
}

func readManifest(d document.Doc) (record.Manifest, error) {
	var m record.Manifest
	if err := decodeDoc(d, &m); err != nil {
		return m, err
	}
	id, ok := record.RunFromKey(d.Key)
	if !ok || m.Run != id {
		return m, fault.New(fault.Corrupt, "document %s is the manifest of run %q", d.Key, m.Run)
	}
	return m, nil
}

// decodeDoc reads a document that may be absent: v then stays as it is.
// Documents of a newer version are refused, never guessed at.
func decodeDoc(d document.Doc, v any) error {
	if d.Revision == "" {
		return nil
	}
	var version struct {
		Schema int `json:"schema"`
	}
	if err := record.Decode(d.Value, &version, "document "+d.Key); err != nil {
		return err
	}
	if version.Schema > record.Schema {
		return &fault.Error{Kind: fault.Invalid, Remedy: "upgrade this rollout",
			Err: fault.New(fault.Invalid, "document %s is of version %d, this rollout reads up to version %d", d.Key, version.Schema, record.Schema)}
	}
	return record.Decode(d.Value, v, "document "+d.Key)
}
