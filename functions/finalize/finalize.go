// Package finalize writes what users read: completions.jsonl, errors.jsonl
// and, last, summary.json.
//
// It is a pure function of immutable inputs: Done shards, the frozen frontier
// and the pinned input. Each item of the run comes out exactly once (I1), in
// item order (I4): its row if there is one, else an error line under its own
// id. Running it twice, or on two machines at once, gives the same bytes; the
// objects are create-only. It may begin while the run goes on and follow its
// commit frontier; what is there is read by nobody before the end. It never
// holds more than a shard in memory, and what a few copies are made of.
package finalize

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/engine/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Finalizer ends runs. Safe for concurrent use.
type Finalizer struct {
	host.Ports
	index *input.Index
}

// New returns a finalizer over the ports.
func New(p host.Ports, ix *input.Index) *Finalizer {
	return &Finalizer{Ports: p.From("finalize"), index: ix}
}

// Finalize writes the files of a run that has come to its end, and says so. A
// run that is not Finalizing, or whose summary is there, needs no work.
func (f *Finalizer) Finalize(ctx context.Context, e events.Finalize) error {
	var s run.State
	if _, _, err := host.Load(ctx, f.Docs, record.CoordinatorKey(identity.RunID(e.Run)), &s); err != nil {
		return err
	}
	if s.Phase != run.Finalizing {
		return nil
	}
	return f.Follow(ctx, s, nil)
}

// ErrWritten ends a Follow whose run was finalized by somebody else.
var ErrWritten = errors.New("the run's files are written already")

// Follow writes a run's files behind its commit frontier, so that little is
// left to do at the end. It begins with the given state and asks next for a
// newer one whenever it has caught up with a run that is not Finalizing yet.
func (f *Finalizer) Follow(ctx context.Context, s run.State, next func(context.Context) (run.State, error)) (err error) {
	ctx, span := f.Begin(ctx, time.Time{}, "finalize", s.Run)
	defer func() { span.End(err) }()
	var m record.Manifest
	if _, found, err := host.Load(ctx, f.Docs, record.ManifestKey(s.Run), &m); err != nil || !found {
		return errors.Join(err, missing(found, "run %s has no manifest", s.Run))
	}
	sum, err := f.summary(ctx, m, s, next)
	if err != nil {
		return err
	}
	return f.Send(ctx, host.CoordinateQueue, events.Finalized{Run: string(s.Run), Phase: sum.Phase})
}

func missing(found bool, format string, args ...any) error {
	if found {
		return nil
	}
	return fault.New(fault.NotFound, format, args...)
}

// summary returns the run's summary, after writing everything that is not
// there yet.
func (f *Finalizer) summary(ctx context.Context, m record.Manifest, s run.State, next func(context.Context) (run.State, error)) (record.Summary, error) {
	key := record.OutputKey(m.Run, record.SummaryFile)
	var sum record.Summary
	if err := input.ReadJSON(ctx, f.Blobs, key, &sum); !fault.Is(err, fault.NotFound) {
		return sum, err
	}
	s, t, err := f.write(ctx, m, s, next)
	if err != nil {
		return sum, fault.Wrap(err, "finalize run %s", m.Run)
	}
	now := f.Clock.Now().UTC()
	sum = record.Summary{
		Schema: record.Schema, Run: m.Run, Name: m.Name, Reason: string(s.Reason), Message: s.Message,
		Phase: string(s.Reason.Phase(t.counts.Failed)), Items: uint64(t.counts.OK + t.counts.Failed),
		Completed: uint64(t.counts.OK), Failed: uint64(t.counts.Failed), FailedByClass: t.counts.ByClass, Copies: uint64(t.copies), Shards: s.Shards,
		PromptTokens: t.counts.PromptTokens, CompletionTokens: t.counts.CompletionTokens, WastedTokens: t.counts.WastedTokens,
		Model: m.ModelURI, Workers: t.workers, CreatedAt: m.CreatedAt, StartedAt: s.StartedAt, EndedAt: now,
		Outputs: record.OutputKey(m.Run, record.Completions), Errors: record.OutputKey(m.Run, record.Errors),
	}
	if sum.FailedByClass == nil {
		sum.FailedByClass = map[string]int{}
	}
	if m.Kind == config.KindTrain {
		if sum.Training, err = f.training(ctx, m, t); err != nil {
			return sum, fault.Wrap(err, "finalize run %s", m.Run)
		}
	}
	if !s.StartedAt.IsZero() {
		sum.Seconds = now.Sub(s.StartedAt).Seconds()
	}
	_, err = f.Blobs.Put(ctx, key, bytes.NewReader(append(record.Encode(sum), '\n')), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // somebody else was faster, with the same counts
		return sum, input.ReadJSON(ctx, f.Blobs, key, &sum)
	}
	if err == nil {
		f.tell(ctx, m, sum)
	}
	return sum, err
}

// tell tells of the run's end: whoever wrote its summary does, and nobody else.
func (f *Finalizer) tell(ctx context.Context, m record.Manifest, s record.Summary) {
	f.Watch.Tracer.Run(ctx, m.Run, m.CreatedAt, s.EndedAt, slog.String(observe.KeyPhase, s.Phase), slog.Uint64("items", s.Items), slog.Uint64("failed", s.Failed))
	f.Observe(ctx, observe.RunEnded{Run: s.Run, Phase: s.Phase, Items: s.Items, Completed: s.Completed, Failed: s.Failed,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, WastedTokens: s.WastedTokens,
		Took: time.Duration(s.Seconds * float64(time.Second))})
}

// totals sum up what the files hold.
type totals struct {
	counts  shard.Counts
	copies  int // among those counted
	workers []string
	kept    *shard.Snapshot // the last one of a training
}

// maxWorkers bounds the list of workers in a summary.
const maxWorkers = 1000

func (t *totals) add(d shard.Doc) {
	c := &t.counts
	c.OK += d.Counts.OK
	c.Failed += d.Counts.Failed
	c.PromptTokens += d.Counts.PromptTokens
	c.CompletionTokens += d.Counts.CompletionTokens
	c.WastedTokens += d.Counts.WastedTokens
	if d.Snapshot != nil {
		t.kept = d.Snapshot
	}
	for k, n := range d.Counts.ByClass {
		t.class(k, n)
	}
	if i, found := slices.BinarySearch(t.workers, d.Worker); !found && d.Worker != "" && len(t.workers) < maxWorkers {
		t.workers = slices.Insert(t.workers, i, d.Worker)
	}
}

// count counts an item: an answered one under "".
func (t *totals) count(class fault.Class) {
	if class == "" {
		t.counts.OK++
		return
	}
	t.counts.Failed++
	t.class(string(class), 1)
}

func (t *totals) class(k string, n int) {
	if t.counts.ByClass == nil {
		t.counts.ByClass = map[string]int{}
	}
	t.counts.ByClass[k] += n
}

// write streams every shard's rows into both files, and returns the state of
// the run's end and what the files hold.
func (f *Finalizer) write(ctx context.Context, m record.Manifest, s run.State, next func(context.Context) (run.State, error)) (run.State, totals, error) {
	out := f.open(ctx, record.OutputKey(m.Run, record.Completions))
	errs := f.open(ctx, record.OutputKey(m.Run, record.Errors))
	w := writer{Finalizer: f, manifest: m, state: s, next: next, out: out, errs: errs, model: model(m), buf: make([]byte, copyBuffer)}
	err := w.shards(ctx)
	err = errors.Join(err, out.finish(err), errs.finish(err))
	return w.state, w.totals, err
}

// sink is an object being put while it is written.
type sink struct {
	*bufio.Writer // single rows are small for a pipe
	pipe          *io.PipeWriter
	done          chan error
}

// sinkBuffer is how much is gathered before it is put.
const sinkBuffer = 64 << 10

func (f *Finalizer) open(ctx context.Context, key string) *sink {
	r, w := io.Pipe()
	s := &sink{Writer: bufio.NewWriterSize(w, sinkBuffer), pipe: w, done: make(chan error, 1)}
	go func() {
		_, err := f.Blobs.Put(ctx, key, r, blob.PutOptions{CreateOnly: true})
		if fault.Is(err, fault.Conflict) { // it is there, with the same bytes
			_, err = io.Copy(io.Discard, r)
		}
		r.CloseWithError(err)
		s.done <- err
	}()
	return s
}

// finish ends the object, or drops it if there was an error.
func (s *sink) finish(err error) error {
	dropped := err != nil
	if !dropped {
		err = s.Flush()
	}
	s.pipe.CloseWithError(err) // without an error, it is the object's end
	put := <-s.done
	if dropped {
		return nil
	}
	return cmp.Or(put, err)
}
