// Package submit turns an uploaded object into a run: it pins the input,
// resolves the config, decides encoding and dialect once, and creates the
// manifest.
//
// The manifest is create-only and its id is derived from bucket, key and
// version, so a repeated event names the same run and changes nothing. What
// can't be a run becomes one that is refused, so that its owner sees why. The
// package never plans, and never reads more than an input's head.
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

// Submitter makes runs.
type Submitter struct {
	host.Ports
	deployment config.Deployment
	at         cloud.Capabilities
}

// New returns a submitter for the deployment at a place of those capabilities.
func New(p host.Ports, d config.Deployment, at cloud.Capabilities) *Submitter {
	return &Submitter{Ports: p.WithSource("submit"), deployment: d, at: at}
}

// Uploaded handles one object's creation. Objects that are no prompts files
// are left alone.
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

// Create completes and creates a manifest whose inputs are pinned, and asks
// for its plan. One that exists already stays as it is, and is announced again.
func (s *Submitter) Create(ctx context.Context, m record.Manifest, cfg config.Run) (err error) {
	ctx, span := s.StartSpan(ctx, time.Time{}, "submit", m.Run)
	defer func() { span.End(err) }()
	switch first, err := host.LoadManifest(ctx, s.Docs, m.Run); {
	case err == nil:
		return s.announce(ctx, first)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	m.Schema, m.Kind, m.Config, m.CreatedAt = record.Schema, cmp.Or(cfg.Kind, config.KindBatch), cfg, s.Clock.Now().UTC()
	if cfg.Name != "" {
		m.Name = cfg.Name
	}
	if m.Refused == "" {
		if err := s.complete(ctx, &m); err != nil {
			switch fault.KindOf(err) {
			case fault.Invalid, fault.Corrupt:
				m.Refused = err.Error()
			case fault.NotFound: // deleted or overwritten since: nothing to run
				s.Log.InfoContext(ctx, "upload is gone", "run", m.Run, "error", err)
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
	case fault.Is(err, fault.Conflict): // somebody was faster, and may have decided otherwise
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

// noteOpen notes that there may be such a run, before there is: what is lost from
// then on, reclaim finds. A note that is there is written again, so that nobody
// takes it for the leftover of a submission that came to nothing.
func (s *Submitter) noteOpen(ctx context.Context, id identity.RunID) error {
	_, err := host.Update(ctx, s.Docs, record.OpenRunKey(id), func(o record.OpenRun, _ bool) (record.OpenRun, bool, error) {
		o.Schema, o.Run, o.At = record.Schema, id, s.Clock.Now().UTC()
		return o, true, nil
	})
	return fault.Wrap(err, "note that run %s is open", id)
}

// announce asks for the run's plan, or shows why there is none. It does so
// again for a run that exists: the first time may have failed half-way.
func (s *Submitter) announce(ctx context.Context, m record.Manifest) error {
	if m.Refused != "" {
		return s.writeRefusal(ctx, m)
	}
	return s.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(m.Run)})
}

// writeRefusal leaves the refusal where users look.
func (s *Submitter) writeRefusal(ctx context.Context, m record.Manifest) error {
	sum := record.Summary{Schema: record.Schema, Run: m.Run, Name: m.Name, Phase: string(run.Failed), Reason: "refused",
		Message: m.Refused, CreatedAt: m.CreatedAt, EndedAt: m.CreatedAt, FailedByClass: map[string]int{}}
	_, err := s.Blobs.Put(ctx, record.OutputKey(m.Run, record.SummaryFile), strings.NewReader(string(record.Encode(sum))+"\n"), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// complete decides what every reader of the run must agree on: model, pool,
// encoding and dialect.
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

// noOutput refuses inputs among the outputs of runs, so that no run feeds
// another, or itself, by what it leaves.
func noOutput(inputs []record.Input) error {
	for _, in := range inputs {
		if strings.HasPrefix(in.Key, record.RunsPrefix) {
			return &fault.Error{Kind: fault.Invalid, Op: in.Label() + " is an output of a run, and outputs are no inputs",
				Remedy: "copy it to a name that begins with " + record.PromptsPrefix}
		}
	}
	return nil
}

// revisionOf is the model's revision: the pool's, where it is known, else what
// the run says.
func revisionOf(p config.Pool, m config.Model) (string, error) {
	if p.Revision != "" && m.Revision != "" && m.Revision != p.Revision {
		return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the pool %s serves the revision %s of %s, not %s", p.Name, p.Revision, p.Model, m.Revision),
			Remedy: "leave model.revision out, or set it to the one that is served"}
	}
	return cmp.Or(p.Revision, m.Revision), nil
}

// pool returns the pool that serves the model.
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
		return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "the config names no model and there are several pools", Remedy: "set model.uri to one of: " + strings.Join(have, ", ")}
	}
	return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "no pool serves the model " + m.URI,
		Remedy: "set model.uri to one of: " + strings.Join(have, ", ") + "; or start rollout with --model " + m.URI}
}

// headSize is how much of an input decides encoding and dialect.
const headSize = 1 << 20

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
		err = nil // the archive was cut at the end of the head
	}
	return b, fault.Wrap(err, "%s", in.Label())
}

// maxConfig bounds a config object.
const maxConfig = 1 << 20

// config returns the config of an upload and where it came from: the .toml of
// the same name, else prompts/rollout.toml, else the deployment's default.
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

// DefaultName is what a run is called when its config does not say.
func DefaultName(key string) string {
	stem, _, _ := input.SplitName(key)
	return path.Base(stem)
}
