package finalize

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Finalizer writes the files of runs. It is safe for concurrent use.
type Finalizer struct {
	host.Ports
	index    *input.Index
	segments *SegmentOptions // nil: every run is written in one stream
}

// Options are what a finalizer takes besides its ports.
type Options struct {
	// Segments, if not nil, has the files of large runs written in segments by
	// many calls, as in clouds, where a call has little time. Nil writes the files
	// of every run in one stream.
	Segments *SegmentOptions
}

// New returns a finalizer that finds shards through ix.
func New(p host.Ports, ix *input.Index, o Options) *Finalizer {
	f := &Finalizer{Ports: p.WithSource("finalize"), index: ix}
	if o.Segments != nil {
		s := o.Segments.withDefaults()
		f.segments = &s
	}
	return f
}

// Finalize writes the files of a run that is Finalizing, and tells coordinate. It
// writes none for a run in another phase, and only tells coordinate if the
// summary exists. For a run that is written in segments it asks for the missing
// ones; the call that writes the last of them asks for Finalize again.
func (f *Finalizer) Finalize(ctx context.Context, e events.Finalize) error {
	s, finalizing, err := f.finalizing(ctx, identity.RunID(e.Run))
	if err != nil || !finalizing {
		return err
	}
	return f.end(ctx, s, func(ctx context.Context, m record.Manifest) (run.State, totals, bool, error) {
		if f.segments == nil || m.Kind == config.KindTrain {
			return f.stream(ctx, m, s, nil, nil)
		}
		return f.bySegments(ctx, m, s)
	})
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
	return f.end(ctx, s, func(ctx context.Context, m record.Manifest) (run.State, totals, bool, error) {
		return f.stream(ctx, m, s, nil, next)
	})
}

// files writes both files of a run. It returns the state at the run's end and
// the totals of the files. whole is false if segments are missing, which it has
// asked for.
type files func(context.Context, record.Manifest) (s run.State, t totals, whole bool, err error)

// end writes a run's files, then its summary, and tells coordinate.
func (f *Finalizer) end(ctx context.Context, s run.State, write files) (err error) {
	ctx, span := f.StartSpan(ctx, time.Time{}, "finalize", s.Run)
	defer func() { span.End(err) }()
	m, err := host.LoadManifest(ctx, f.Docs, s.Run)
	if err != nil {
		return err
	}
	sum, whole, err := f.summary(ctx, m, write)
	if err != nil || !whole {
		return err
	}
	return f.Send(ctx, host.CoordinateQueue, events.Finalized{Run: string(s.Run), Phase: sum.Phase})
}

// summary returns the run's summary. Unless it exists, it first writes the files,
// and then the summary.
func (f *Finalizer) summary(ctx context.Context, m record.Manifest,
	write files) (sum record.Summary, whole bool, err error) {
	key := record.OutputKey(m.Run, record.SummaryFile)
	if err := input.ReadJSON(ctx, f.Blobs, key, &sum); !fault.Is(err, fault.NotFound) {
		return sum, err == nil, err
	}
	s, t, whole, err := write(ctx, m)
	if err != nil || !whole {
		return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
	}
	sum = f.summarize(m, s, t)
	if m.Kind == config.KindTrain {
		if sum.Training, err = f.training(ctx, m, t); err != nil {
			return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
		}
	}
	body := bytes.NewReader(append(record.Encode(sum), '\n'))
	_, err = f.Blobs.Put(ctx, key, body, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // another process wrote it first, with the same counts
		err = input.ReadJSON(ctx, f.Blobs, key, &sum)
		return sum, err == nil, err
	}
	if err == nil {
		f.reportEnd(ctx, m, sum)
	}
	return sum, err == nil, err
}

// summarize makes the summary of a run that ended with the state s.
func (f *Finalizer) summarize(m record.Manifest, s run.State, t totals) record.Summary {
	now := f.Clock.Now().UTC()
	sum := record.Summary{
		Schema: record.Schema, Run: m.Run, Name: m.Name, Reason: string(s.Reason), Message: s.Message,
		Phase: string(s.Reason.Phase(t.counts.Failed)), Items: uint64(t.counts.OK + t.counts.Failed),
		Completed: uint64(t.counts.OK), Failed: uint64(t.counts.Failed), FailedByClass: t.counts.ByClass,
		Copies: uint64(t.copies), Shards: s.Shards, PromptTokens: t.counts.PromptTokens,
		CompletionTokens: t.counts.CompletionTokens, WastedTokens: t.counts.WastedTokens,
		Model: m.ModelURI, Workers: t.workers, CreatedAt: m.CreatedAt, StartedAt: s.StartedAt, EndedAt: now,
		Outputs: record.OutputKey(m.Run, record.CompletionsFile), Errors: record.OutputKey(m.Run, record.ErrorsFile),
	}
	if sum.FailedByClass == nil {
		sum.FailedByClass = map[string]int{}
	}
	if !s.StartedAt.IsZero() {
		sum.Seconds = now.Sub(s.StartedAt).Seconds()
	}
	return sum
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
