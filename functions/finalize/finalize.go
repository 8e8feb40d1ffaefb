// Package finalize writes what users read: completions.jsonl, errors.jsonl
// and, last, summary.json.
//
// It is a pure function of immutable inputs: Done shards, the frozen frontier
// and the pinned input. Each item of the run comes out exactly once (I1), in
// item order (I4): its row if there is one, else an error line under its own
// id. Running it twice, or on two machines at once, gives the same bytes; the
// objects are create-only. It may begin while the run goes on and follow its
// commit frontier; what is there is read by nobody before the end. Where a call
// has little time, as in clouds, many write segments of the files at once, and
// one joins them. It never holds more than a few shards in memory, and what a
// few copies are made of.
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

// Finalizer ends runs. Safe for concurrent use.
type Finalizer struct {
	host.Ports
	index    *input.Index
	segments *SegmentOptions // nil: every run's files are written in one stream each
}

// New returns a finalizer over the ports.
func New(p host.Ports, ix *input.Index) *Finalizer {
	return &Finalizer{Ports: p.WithSource("finalize"), index: ix}
}

// Finalize writes the files of a run that has come to its end, and says so. A
// run that is not Finalizing, or whose summary is there, needs no work. Of a
// run that is written in segments it asks for those that are missing; whoever
// writes the last of them has it called again.
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

// finalizing reads the state of a run; one whose phase is another is none of
// ours, yet or any more.
func (f *Finalizer) finalizing(ctx context.Context, id identity.RunID) (s run.State, finalizing bool, err error) {
	_, _, err = host.Load(ctx, f.Docs, record.CoordinatorKey(id), &s)
	return s, err == nil && s.Phase == run.Finalizing, err
}

// ErrAlreadyFinalized ends a Follow whose run was finalized by somebody else.
var ErrAlreadyFinalized = errors.New("the run's files are written already")

// Follow writes a run's files behind its commit frontier, so that little is
// left to do at the end. It begins with the given state and asks next for a
// newer one whenever it has caught up with a run that is not Finalizing yet.
func (f *Finalizer) Follow(ctx context.Context, s run.State, next func(context.Context) (run.State, error)) error {
	return f.end(ctx, s, func(ctx context.Context, m record.Manifest) (run.State, totals, bool, error) {
		return f.stream(ctx, m, s, nil, next)
	})
}

// files writes both files of a run. It returns the state of the run's end and
// what they hold; whole is false if it asked others for parts of them instead.
type files func(context.Context, record.Manifest) (s run.State, t totals, whole bool, err error)

// end leaves a run's files and then its summary, and says so.
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

// summary returns the run's summary, after writing everything that is not
// there yet.
func (f *Finalizer) summary(ctx context.Context, m record.Manifest, write files) (sum record.Summary, whole bool, err error) {
	key := record.OutputKey(m.Run, record.SummaryFile)
	if err := input.ReadJSON(ctx, f.Blobs, key, &sum); !fault.Is(err, fault.NotFound) {
		return sum, err == nil, err
	}
	s, t, whole, err := write(ctx, m)
	if err != nil || !whole {
		return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
	}
	now := f.Clock.Now().UTC()
	sum = record.Summary{
		Schema: record.Schema, Run: m.Run, Name: m.Name, Reason: string(s.Reason), Message: s.Message,
		Phase: string(s.Reason.Phase(t.counts.Failed)), Items: uint64(t.counts.OK + t.counts.Failed),
		Completed: uint64(t.counts.OK), Failed: uint64(t.counts.Failed), FailedByClass: t.counts.ByClass, Copies: uint64(t.copies), Shards: s.Shards,
		PromptTokens: t.counts.PromptTokens, CompletionTokens: t.counts.CompletionTokens, WastedTokens: t.counts.WastedTokens,
		Model: m.ModelURI, Workers: t.workers, CreatedAt: m.CreatedAt, StartedAt: s.StartedAt, EndedAt: now,
		Outputs: record.OutputKey(m.Run, record.CompletionsFile), Errors: record.OutputKey(m.Run, record.ErrorsFile),
	}
	if sum.FailedByClass == nil {
		sum.FailedByClass = map[string]int{}
	}
	if m.Kind == config.KindTrain {
		if sum.Training, err = f.training(ctx, m, t); err != nil {
			return sum, false, fault.Wrap(err, "finalize run %s", m.Run)
		}
	}
	if !s.StartedAt.IsZero() {
		sum.Seconds = now.Sub(s.StartedAt).Seconds()
	}
	_, err = f.Blobs.Put(ctx, key, bytes.NewReader(append(record.Encode(sum), '\n')), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // somebody else was faster, with the same counts
		err = input.ReadJSON(ctx, f.Blobs, key, &sum)
		return sum, err == nil, err
	}
	if err == nil {
		f.reportEnd(ctx, m, sum)
	}
	return sum, err == nil, err
}

// reportEnd tells of the run's end: whoever wrote its summary does, and nobody else.
func (f *Finalizer) reportEnd(ctx context.Context, m record.Manifest, s record.Summary) {
	f.Watch.Tracer.RecordRun(ctx, m.Run, m.CreatedAt, s.EndedAt, slog.String(observe.KeyPhase, s.Phase), slog.Uint64("items", s.Items), slog.Uint64("failed", s.Failed))
	f.Observe(ctx, observe.RunEnded{Run: s.Run, Phase: s.Phase, Items: s.Items, Completed: s.Completed, Failed: s.Failed,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, WastedTokens: s.WastedTokens,
		Took: time.Duration(s.Seconds * float64(time.Second))})
}
