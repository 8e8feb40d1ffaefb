package finalize

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Finalizer writes the files of runs. It is safe for concurrent use.
type Finalizer struct {
	host.Ports
	index    *input.Index
	segments *SegmentOptions // nil: every run is written in one stream
	kinds    kind.Table
	prices   config.Deployment
	onEnded  func(context.Context, record.Manifest, record.Summary)
}

// Options are what a finalizer takes besides its ports.
type Options struct {
	// Segments, if not nil, has the files of large runs written in segments by
	// many calls, as in clouds, where a call has little time. Nil writes the files
	// of every run in one stream.
	Segments *SegmentOptions
	Kinds    kind.Table
	// Prices are those of the deployment's engines. The zero value has none: runs cost 0.
	Prices config.Deployment
	// OnEnded is optional. It is called after the summary is written and coordinate is told,
	// perhaps several times.
	OnEnded func(context.Context, record.Manifest, record.Summary)
}

// New returns a finalizer that finds shards through ix.
func New(p host.Ports, ix *input.Index, o Options) *Finalizer {
	f := &Finalizer{Ports: p.WithSource("finalize"), index: ix, kinds: o.Kinds, prices: o.Prices,
		onEnded: o.OnEnded}
	if o.Segments != nil {
		s := o.Segments.withDefaults()
		f.segments = &s
	}
	return f
}

// Finalize writes the files of a run that is Finalizing, and tells coordinate. It
// writes none for a run that another process ends meanwhile, and only
// tells coordinate if the summary exists. For a run that goes on it writes the parts of its
// facts that are whole. For a run that is written in segments it asks for the missing
// ones; the call that writes the last of them asks for Finalize again.
func (f *Finalizer) Finalize(ctx context.Context, e events.Finalize) error {
	s, finalizing, err := f.finalizing(ctx, identity.RunID(e.Run))
	if err != nil {
		return err
	}
	if !finalizing {
		return f.factsSoFar(ctx, s)
	}
	err = f.end(ctx, s, func(ctx context.Context, m record.Manifest, k kind.Kind) (run.State, totals, bool, error) {
		if f.segments == nil || k.OneStream {
			return f.stream(ctx, m, s, nil, nil, nil)
		}
		return f.bySegments(ctx, m, s)
	})
	if errors.Is(err, ErrAlreadyFinalized) {
		return nil
	}
	return err
}

// finalizing reads the state of a run and reports whether it is Finalizing.
func (f *Finalizer) finalizing(ctx context.Context, id identity.RunID) (s run.State, finalizing bool, err error) {
	_, _, err = host.Load(ctx, f.Docs, record.CoordinatorKey(id), &s)
	return s, err == nil && s.Phase == run.Finalizing, err
}

// ErrAlreadyFinalized ends a Follow whose run another process has finalized.
var ErrAlreadyFinalized = errors.New("the run's files are written already")

// Follow writes a run's files behind its commit frontier, so that little is left
// to do at the end. It starts with the state s. Whenever it has caught up with a
// run that is not Finalizing yet, it calls next, which waits for a newer state.
func (f *Finalizer) Follow(ctx context.Context, s run.State, next func(context.Context) (run.State, error)) error {
	return f.end(ctx, s, func(ctx context.Context, m record.Manifest, k kind.Kind) (run.State, totals, bool, error) {
		return f.stream(ctx, m, s, nil, next, f.newParts(m, k))
	})
}

// files writes both files of a run. It returns the state at the run's end and
// the totals of the files. whole is false if segments are missing, which it has
// asked for.
type files func(context.Context, record.Manifest, kind.Kind) (s run.State, t totals, whole bool, err error)

// end writes a run's files, then its summary, and tells coordinate.
func (f *Finalizer) end(ctx context.Context, s run.State, write files) (err error) {
	ctx, span := f.StartSpan(ctx, time.Time{}, "finalize", s.Run)
	defer func() { span.End(err) }()
	m, err := host.LoadManifest(ctx, f.Docs, s.Run)
	if err != nil {
		return err
	}
	k, err := f.kinds.Of(m.Kind)
	if err != nil {
		return err
	}
	sum, whole, err := f.summary(ctx, m, k, write)
	if err != nil || !whole {
		return err
	}
	err = f.Send(ctx, host.CoordinateQueue, events.Finalized{Run: string(s.Run), Phase: sum.Phase})
	if err == nil && f.onEnded != nil {
		f.onEnded(ctx, m, sum)
	}
	return err
}

// reportEnd records the run's end for observers. Only the process that wrote the
// summary calls it.
func (f *Finalizer) reportEnd(ctx context.Context, m record.Manifest, s record.Summary) {
	f.Watch.Tracer.RecordRun(ctx, m.Run, m.CreatedAt, s.EndedAt, slog.String(observe.KeyPhase, s.Phase),
		slog.Uint64("items", s.Items), slog.Uint64("failed", s.Failed))
	f.Observe(ctx, observe.RunEnded{Run: s.Run, Phase: s.Phase, Items: s.Items, Completed: s.Completed, Failed: s.Failed,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, WastedTokens: s.WastedTokens,
		Took: time.Duration(s.Seconds * float64(time.Second))})
}
