package api

import (
	"cmp"
	"context"
	"slices"

	"rollout/shared/config"
	"rollout/shared/document"
	"rollout/shared/engine/health"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Service answers users. It is safe for concurrent use.
type Service struct {
	ports   host.Ports
	bucket  string // the deployment's name of it, part of run ids
	timings health.Timings
}

// New returns the service of a deployment.
func New(p host.Ports, d config.Deployment) *Service {
	return &Service{
		ports:   p.From("api"),
		bucket:  d.Bucket,
		timings: host.Timings(d.Health),
	}
}

// List returns every run, the newest first.
func (s *Service) List(ctx context.Context) ([]Status, error) {
	var manifests []record.Manifest
	for d, err := range document.All(ctx, s.ports.Docs, runPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the runs")
		}
		m, err := readManifest(d)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, m)
	}
	beats, err := s.beats(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Status, 0, len(manifests))
	for part := range slices.Chunk(manifests, document.MaxKeys/2) {
		part, err := s.statuses(ctx, part, beats)
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
	m, err := s.manifest(ctx, id)
	if err != nil {
		return Status{}, err
	}
	beats, err := s.beats(ctx)
	if err != nil {
		return Status{}, err
	}
	out, err := s.statuses(ctx, []record.Manifest{m}, beats)
	if err != nil {
		return Status{}, err
	}
	return out[0], nil
}

// statuses reads how far the runs are: at most half of document.MaxKeys.
func (s *Service) statuses(ctx context.Context, ms []record.Manifest, beats []health.Beat) ([]Status, error) {
	keys := make([]string, 0, 2*len(ms))
	for _, m := range ms {
		keys = append(keys, record.CoordinatorKey(m.Run), record.PlanKey(m.Run))
	}
	docs, err := s.ports.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the runs' progress")
	}
	now := s.ports.Clock.Now()
	held := s.heldShards(beats, now)
	out := make([]Status, len(ms))
	for i, m := range ms {
		p := Progress{Manifest: m, State: run.New(m.Run), Held: held[m.Run]}
		if err := decodeDoc(docs[2*i], &p.State); err != nil {
			return nil, err
		}
		if err := decodeDoc(docs[2*i+1], &p.Plan); err != nil {
			return nil, err
		}
		out[i] = StatusOf(p, now)
	}
	return out, nil
}

// runPrefix is where manifests are.
const runPrefix = "run/"

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
	id, ok := record.RunOf(d.Key)
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
