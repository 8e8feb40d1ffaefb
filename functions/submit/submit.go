// Package submit turns an uploaded object into a run.
//
//		ObjectCreated ─▶ config ─▶ complete ─▶ open index ─▶ manifest ─▶ RunSubmitted ─▶ plan
//		                              └─ cannot run ─▶ refused manifest, summary
//
//	 1. Resolve the config: the .toml of the same name, prompts/rollout.toml, or
//	    the default of the deployment.
//	 2. Complete the manifest: decide pool, model, encoding and dialect once for
//	    all readers, from the config and the head of each input.
//	 3. Enter the run into the index of open runs, so that reclaim finds it
//	    whatever is lost later.
//	 4. Create the manifest. Its id is derived from bucket, key and version of the
//	    object, so that a repeated event names the same run; the first manifest
//	    wins.
//	 5. Ask for the plan, also if the manifest already existed: an earlier call may
//	    have failed before it asked.
//
// An upload that cannot be a run becomes a refused run, so that its owner sees
// why. The package never plans, and reads only the head of an input.
package submit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/jsonl"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Submitter creates runs. It is safe for concurrent use.
type Submitter struct {
	host.Ports
	deployment config.Deployment
	at         cloud.Capabilities
}

// New returns a submitter for the deployment at a place of those capabilities.
func New(p host.Ports, d config.Deployment, at cloud.Capabilities) *Submitter {
	return &Submitter{Ports: p.WithSource("submit"), deployment: d, at: at}
}

// Uploaded handles the creation of an object. It ignores objects that are not
// prompts files.
func (s *Submitter) Uploaded(ctx context.Context, e events.ObjectCreated) error {
	if !input.IsPromptsKey(e.Key) {
		return nil
	}
	stem, packed, _ := input.SplitName(e.Key)
	id := identity.UploadRun(s.deployment.Bucket, e.Key, e.Version)
	in := record.Input{Key: e.Key, Version: e.Version, Size: e.Size, Packed: packed}
	m := record.Manifest{Run: id, Name: DefaultName(e.Key), Inputs: []record.Input{in}}
	cfg, key, err := s.config(ctx, stem)
	m.ConfigKey = key
	if err != nil {
		if !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Corrupt) {
			return err
		}
		m.Refused = err.Error()
	}
	return s.Create(ctx, m, cfg)
}

// Create completes and creates a manifest whose inputs are pinned, and asks for
// its plan. If the manifest already exists it stays as it is, and Create only
// asks for its plan. If an input is gone, Create creates nothing and returns nil.
func (s *Submitter) Create(ctx context.Context, m record.Manifest, cfg config.Run) (err error) {
	ctx, span := s.StartSpan(ctx, time.Time{}, "submit", m.Run)
	defer func() { span.End(err) }()
	switch first, err := host.LoadManifest(ctx, s.Docs, m.Run); {
	case err == nil:
		return s.announce(ctx, first)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	m.Schema, m.Kind, m.Config = record.Schema, cmp.Or(cfg.Kind, config.KindBatch), cfg
	m.CreatedAt = s.Clock.Now().UTC()
	if cfg.Name != "" {
		m.Name = cfg.Name
	}
	if m.Refused == "" {
		if err := s.complete(ctx, &m); err != nil {
			switch fault.KindOf(err) {
			case fault.Invalid, fault.Corrupt:
				m.Refused = err.Error()
			case fault.NotFound: // deleted or overwritten since
				s.Log.InfoContext(ctx, "upload is gone", observe.KeyRun, m.Run, observe.KeyError, err)
				return nil
			default:
				return err
			}
		}
	}
	if m.Refused == "" {
		if err := s.noteOpen(ctx, m.Run); err != nil {
			return err
		}
	}
	_, err = host.Save(ctx, s.Docs, record.ManifestKey(m.Run), m, "")
	switch {
	case fault.Is(err, fault.Conflict): // another call created it first, and may have decided otherwise
		if m, err = host.LoadManifest(ctx, s.Docs, m.Run); err != nil {
			return err
		}
	case err != nil:
		return err
	case m.Refused != "":
		s.Observe(ctx, observe.RunRefused{Run: m.Run, Name: m.Name, Reason: m.Refused})
	default:
		s.Observe(ctx, observe.RunSubmitted{Run: m.Run, Name: m.Name, Model: m.ModelURI, Dialect: m.Dialect})
	}
	return s.announce(ctx, m)
}

// noteOpen enters the run into the index of open runs before the run exists, so
// that reclaim finds it if a later step is lost. It renews an existing note, so
// that reclaim does not take it for that of a failed submission.
func (s *Submitter) noteOpen(ctx context.Context, id identity.RunID) error {
	change := func(o record.OpenRun, _ bool) (record.OpenRun, bool, error) {
		o.Schema, o.Run, o.At = record.Schema, id, s.Clock.Now().UTC()
		return o, true, nil
	}
	_, err := host.Update(ctx, s.Docs, record.OpenRunKey(id), change)
	return fault.Wrap(err, "note that run %s is open", id)
}

// announce asks for the run's plan. For a refused run it writes the refusal
// instead.
func (s *Submitter) announce(ctx context.Context, m record.Manifest) error {
	if m.Refused != "" {
		return s.writeRefusal(ctx, m)
	}
	return s.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(m.Run)})
}

// writeRefusal writes the summary of a refused run, which users read.
func (s *Submitter) writeRefusal(ctx context.Context, m record.Manifest) error {
	sum := record.Summary{Schema: record.Schema, Run: m.Run, Name: m.Name, Phase: string(run.Failed), Reason: "refused",
		Message: m.Refused, CreatedAt: m.CreatedAt, EndedAt: m.CreatedAt, FailedByClass: map[string]int{}}
	key, body := record.OutputKey(m.Run, record.SummaryFile), strings.NewReader(string(record.Encode(sum))+"\n")
	_, err := s.Blobs.Put(ctx, key, body, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// complete decides what all readers of the run must agree on: pool, model,
// encoding and dialect. Its Invalid and Corrupt errors refuse the run.
func (s *Submitter) complete(ctx context.Context, m *record.Manifest) error {
	if err := noOutput(m.Inputs); err != nil {
		return err
	}
	if m.Kind == config.KindTrain {
		return s.completeTraining(ctx, m)
	}
	pool, err := s.pool(m.Config.Model)
	if err != nil {
		return err
	}
	m.Pool, m.ModelURI = pool.Name, pool.Model
	revision, err := revisionOf(pool, m.Config.Model)
	if err != nil {
		return err
	}
	m.ModelID = identity.Model(pool.Model, revision).String()
	m.Dialect = m.Config.Input.Dialect
	for _, in := range m.Inputs {
		head, err := s.head(ctx, in)
		if err != nil {
			return err
		}
		if err := jsonl.Sniff(head); err != nil {
			return fault.Wrap(err, "%s", in.Label())
		}
		if m.Dialect == "" && len(head) > 0 {
			m.Dialect = string(dialect.Detect(head))
		}
	}
	if m.Dialect == "" {
		m.Dialect = string(dialect.Plain)
	}
	return nil
}

// noOutput refuses inputs that are outputs of runs, so that a run cannot feed
// another one, or itself.
func noOutput(inputs []record.Input) error {
	for _, in := range inputs {
		if strings.HasPrefix(in.Key, record.RunsPrefix) {
			return &fault.Error{Kind: fault.Invalid, Op: in.Label() + " is the output of a run and cannot be an input",
				Remedy: "copy it to a name that begins with " + record.PromptsPrefix}
		}
	}
	return nil
}

// revisionOf returns the model's revision: that of the pool if it is known,
// otherwise that of the run's config. Two different ones are Invalid.
func revisionOf(p config.Pool, m config.Model) (string, error) {
	if p.Revision != "" && m.Revision != "" && m.Revision != p.Revision {
		return "", &fault.Error{Kind: fault.Invalid, Remedy: "leave model.revision out, or set it to the one that is served",
			Err: fmt.Errorf("the pool %s serves the revision %s of %s, not %s", p.Name, p.Revision, p.Model, m.Revision)}
	}
	return cmp.Or(p.Revision, m.Revision), nil
}

// pool returns the pool that serves the model. A config without a model gets the
// only pool, if there is just one.
func (s *Submitter) pool(m config.Model) (config.Pool, error) {
	ps := s.deployment.InferPools()
	if m.URI == "" && len(ps) == 1 {
		return ps[0], nil
	}
	var have []string
	for _, p := range ps {
		if p.Model == m.URI {
			return p, nil
		}
		have = append(have, p.Model)
	}
	if m.URI == "" {
		return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "the config names no model and there are several pools",
			Remedy: "set model.uri to one of: " + strings.Join(have, ", ")}
	}
	return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "no pool serves the model " + m.URI,
		Remedy: "set model.uri to one of: " + strings.Join(have, ", ") + "; or start rollout with --model " + m.URI}
}

// headSize is how many bytes of an input decide encoding and dialect.
const headSize = 1 << 20

// head reads the head of an input, unpacked. An input that is gone or changed is
// NotFound.
func (s *Submitter) head(ctx context.Context, in record.Input) ([]byte, error) {
	r, err := input.OpenPinned(ctx, s.Blobs, in.Key, blob.GetOptions{Version: in.Version, Length: headSize})
	if err != nil {
		if fault.ClassOf(err) == fault.InputChanged {
			return nil, fault.WithKind(fault.NotFound, err, "this version of %s is gone", in.Label())
		}
		return nil, err
	}
	defer r.Close()
	u, err := input.Unpack(r, in.Packed)
	if err != nil {
		return nil, fault.Wrap(err, "%s", in.Label())
	}
	defer u.Close()
	b, err := io.ReadAll(io.LimitReader(u, headSize))
	if fault.Is(err, fault.Corrupt) && in.Packed != "" && len(b) > 0 {
		err = nil // only the head of the archive was read
	}
	return b, fault.Wrap(err, "%s", in.Label())
}

// maxConfig bounds a config object, in bytes.
const maxConfig = 1 << 20

// config returns the config of an upload and the key of its object: the .toml
// with the same stem, or prompts/rollout.toml, or the deployment's default, whose
// key is "".
func (s *Submitter) config(ctx context.Context, stem string) (config.Run, string, error) {
	for _, k := range []string{stem + ".toml", record.PromptsPrefix + "rollout.toml"} {
		b, err := input.ReadObject(ctx, s.Blobs, k, maxConfig)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return config.Run{}, k, err
		}
		cfg, err := config.ParseRun(k, b)
		return cfg, k, err
	}
	return s.deployment.Defaults, "", nil
}

// DefaultName is the name of a run whose config has none. Example: "nightly".
func DefaultName(key string) string {
	stem, _, _ := input.SplitName(key)
	return path.Base(stem)
}

// completeTraining is complete for a training. Its model is the base model, its
// pool the one that trains, and its input one dataset.
func (s *Submitter) completeTraining(ctx context.Context, m *record.Manifest) error {
	if s.at.ManagedFleet { // no machine starts for a training pool, and the pool has no queue
		return &fault.Error{Kind: fault.Invalid, Remedy: "train on a machine of yours: rollout train, or rollout up",
			Err: fault.New(fault.Invalid, "a training can't run in a cloud in this version")}
	}
	if m.Config.Algorithm == nil {
		return fault.New(fault.Invalid, "a training has no algorithm")
	}
	if len(m.Inputs) != 1 {
		return fault.New(fault.Invalid, "a training has one dataset, not %d", len(m.Inputs))
	}
	pool, _ := s.deployment.TrainPool()
	base := m.Config.Algorithm.Common().BaseModel.URI
	m.Pool, m.ModelURI, m.ModelID, m.Dialect = pool.Name, base, identity.Model(base, "").String(), string(dialect.Plain)
	head, err := s.head(ctx, m.Inputs[0])
	if err != nil {
		return err
	}
	if len(head) == 0 {
		return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%s has no rows", m.Inputs[0].Label()),
			Remedy: "put rows into the .jsonl beside its config: a training of kind " + m.Config.Algorithm.Kind +
				" learns from them"}
	}
	return fault.Wrap(jsonl.Sniff(head), "%s", m.Inputs[0].Label())
}
