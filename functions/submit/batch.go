package submit

import (
	"context"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Batch creates the run of a batch. Its config is that of the bucket or the deployment, with
// the batch's window as the deadline. If the run exists it stays as it is, and Batch only asks
// for its plan. A batch whose file is gone becomes a refused run: its client waits for an end.
func (s *Submitter) Batch(ctx context.Context, e events.BatchRequested) error {
	id := identity.RunID(e.Run)
	switch first, err := host.LoadManifest(ctx, s.Docs, id); { // before its file is read again
	case err == nil:
		return s.announce(ctx, first)
	case host.IsExpired(err):
		return s.passOver(ctx, err)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	var b record.Batch
	switch _, found, err := host.Load(ctx, s.Docs, record.BatchKey(id), &b); {
	case err != nil:
		return err
	case !found:
		return fault.New(fault.Invalid, "batch %s does not exist", id)
	}
	m := record.Manifest{Run: id, Name: DefaultName(b.FileName), Inputs: []record.Input{b.Input}, CreatedAt: b.Created}
	cfg, key, err := s.config(ctx, record.FilesPrefix+b.File, b.Input.Size)
	m.ConfigKey = key
	switch {
	case err == nil:
	case s.refuses(err):
		m.Refused, cfg = err.Error(), config.DefaultRun()
	default:
		return err
	}
	if _, err := s.Blobs.Stat(ctx, b.Input.Key, b.Input.Version); fault.Is(err, fault.NotFound) {
		m.Refused = "the file " + b.File + " was deleted before the batch began"
	}
	if b.Strict && m.Refused == "" {
		switch why, err := s.checkStrict(ctx, b, cfg); {
		case s.refuses(err):
			m.Refused = err.Error()
		case err != nil:
			return err
		default:
			m.Refused = why
		}
	}
	cfg.Limits.Deadline, cfg.Input.Dialect = config.Duration(b.Deadline), string(dialect.OpenAI)
	return s.Create(ctx, m, cfg)
}
