package finalize_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"rollout/functions/finalize"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// tail is a tail of one of the run's files, and what it has written.
type tail struct {
	fixture
	*finalize.Tail
	out strings.Builder
}

func (d fixture) tail(file string) *tail {
	d.t.Helper()
	out := &tail{fixture: d}
	t, err := d.finalizer().Tail(d.t.Context(), id, file, &out.out)
	if err != nil {
		d.t.Fatal(err)
	}
	out.Tail = t
	return out
}

// wantAfter advances the tail in a state of the run, and checks all that it has written.
func (t *tail) wantAfter(what string, p run.Phase, frontier int, want string) {
	t.t.Helper()
	t.save(p, frontier)
	if _, err := t.Advance(t.t.Context()); err != nil {
		t.t.Fatalf("%s: %v", what, err)
	}
	if got := t.out.String(); got != want {
		t.t.Errorf("%s: the tail has\n%q, want\n%q", what, got, want)
	}
}

func TestTailWritesTheFileOfTheRunAsItGrows(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.save(run.Finalizing, 4)
	if err := d.finalize(); err != nil { // the files that the run will have
		t.Fatal(err)
	}
	completions, errs := d.file(record.CompletionsFile), d.file(record.ErrorsFile)
	for _, c := range []struct{ file, first, second, whole string }{
		{record.CompletionsFile, "a0\na1\n", "a0\na1\na3\n", completions},
		{record.ErrorsFile, "", "e2\n", errs},
	} {
		out := d.tail(c.file)
		out.wantAfter("nothing is committed", run.Running, 0, "")
		out.wantAfter("a shard is", run.Running, 1, c.first)
		out.wantAfter("it is read again", run.Running, 1, c.first)
		out.wantAfter("the run is paused", run.Paused, 2, c.second)
		out.wantAfter("the end has sealed shards", run.Ending, 4, c.second)
		out.wantAfter("the files are being written", run.Finalizing, 4, c.second)
		out.wantAfter("the run has ended", run.Stopped, 4, c.whole)
		out.wantAfter("it is read again", run.Stopped, 4, c.whole)
		if ok, failed := out.Rows(); ok != 3 || failed != 1 {
			t.Errorf("%s: %d items are answered and %d failed before the end", c.file, ok, failed)
		}
		whole := d.tail(c.file)
		whole.wantAfter("a run that has ended", run.Stopped, 4, c.whole)
	}
}

func TestTailOfAChildHasTheRowsOfItsParent(t *testing.T) {
	t.Parallel()
	d := newChild(t)
	var out strings.Builder
	tail, err := d.finalizer().Tail(t.Context(), childID, record.CompletionsFile, &out)
	if err != nil {
		t.Fatal(err)
	}
	s := hosttest.Load[run.State](t, d.Ports, record.CoordinatorKey(childID))
	s.Phase, s.FrozenFrontier = run.Running, 0
	hosttest.Save(t, d.Ports, record.CoordinatorKey(childID), s)
	if _, err := tail.Advance(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "a0\na1\na3\nb4\na5\nb6\nb7\nb8\nb9\nb10\nb11\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTailRefusesAFileWithOtherRowsThanItHasWritten(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	out := d.tail(record.CompletionsFile)
	out.wantAfter("two shards are committed", run.Running, 2, "a0\na1\na3\n")
	if err := d.Blobs.Delete(t.Context(), record.ShardObjectKey(id, 1, 1, "result"), ""); err != nil {
		t.Fatal(err)
	}
	d.save(run.Finalizing, 4)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	d.save(run.Stopped, 4)
	if _, err := out.Advance(t.Context()); !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v", err)
	}
}

func TestTailOfATrainingIsInvalid(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	m := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(id))
	m.Kind = config.KindTrain
	hosttest.Save(t, d.Ports, record.ManifestKey(id), m)
	_, err := d.finalizer().Tail(t.Context(), id, record.CompletionsFile, &strings.Builder{})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// The results of a run that has ended are freed. A tail that reads them meanwhile goes on with
// the file, also behind a part of a shard's rows.
func TestTailGoesOnWithTheFileWhenResultsAreFreed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.save(run.Finalizing, 4)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	completions := d.file(record.CompletionsFile)
	for _, written := range []int{0, 1} {
		freed := d
		freed.Blobs = freedMeanwhile{Store: d.Blobs, gone: record.ShardObjectKey(id, written, 1, "result"),
			end: func() { d.save(run.Stopped, 4) }}
		out := freed.tail(record.CompletionsFile)
		if written > 0 {
			out.wantAfter("a shard is committed", run.Running, 1, "a0\na1\n")
		}
		d.save(run.Running, 2) // as the tail reads it
		s, err := out.Advance(t.Context())
		if err != nil || s.Phase != run.Stopped || out.out.String() != completions {
			t.Errorf("after %d shards: %s, %v, the tail has\n%q, want\n%q", written, s.Phase, err, out.out.String(), completions)
		}
	}
}

// freedMeanwhile is a bucket whose run ends, and frees its results, when one is read.
type freedMeanwhile struct {
	blob.Store
	gone string
	end  func()
}

func (b freedMeanwhile) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == b.gone {
		b.end()
		return nil, blob.Info{}, fault.New(fault.NotFound, "%s is gone", key)
	}
	return b.Store.Get(ctx, key, o)
}
