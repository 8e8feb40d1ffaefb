package reclaim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// ended saves a run of one shard that has ended, with its files and its work files.
func (d fixture) ended() {
	d.t.Helper()
	m := inputtest.Plan(d.t, d.Ports, inputtest.Manifest(2), inputtest.Prompts(0, 2))
	d.addOpen(id)
	s := run.New(id)
	s.Phase, s.Shards, s.Items, s.Complete, s.NextShard = run.CompletedWithErrors, 1, 2, true, 1
	d.save(record.CoordinatorKey(id), s)
	result := record.ShardObjectKey(id, 0, 2, "result")
	hosttest.Put(d.t, d.Ports, result, "a\nb\n")
	hosttest.Put(d.t, d.Ports, record.ShardObjectKey(id, 0, 1, "checkpoint"), "a\n")
	d.save(identity.ShardKey(id, 0), shard.Doc{Schema: 1, Run: id, State: shard.Done, Attempt: 2, Items: 2,
		Result: &shard.Ref{Key: result, Length: 4}, OutputLen: 2})
	hosttest.Put(d.t, d.Ports, record.OutputKey(id, record.CompletionsFile), "a\n")
	hosttest.Put(d.t, d.Ports, record.OutputKey(id, record.ErrorsFile), "b\n")
	e := shardtable.FileEntry{Outputs: 2, Errors: 2, OK: 1, Failed: 1}
	hosttest.Put(d.t, d.Ports, record.FileEntriesKey(id), string(e.Append(nil)))
	hosttest.Put(d.t, d.Ports, record.OutputKey(id, record.SummaryFile), "{}\n")
	hosttest.Put(d.t, d.Ports, record.TrainingFileKey(m.Run, "x"), "weights")
	d.FreeWith(NewFreer(d.Ports))
}

// work returns the keys of the run's work files that can be freed.
func (d fixture) work() (keys []string) {
	d.t.Helper()
	for _, dir := range freedDirs(id) {
		infos, err := d.Ports.Blobs.List(d.t.Context(), dir, "", blob.MaxList)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, info := range infos {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// isOpen reports whether the run is in the index of open runs.
func (d fixture) isOpen() bool {
	d.t.Helper()
	_, err := d.Ports.Docs.Get(d.t.Context(), record.OpenRunKey(id))
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.t.Fatal(err)
	}
	return err == nil
}

func TestWorkFilesOfAnEndedRunAreFreed(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(d fixture) error{
		"by a scan":               func(d fixture) error { return d.Scan(t.Context()) },
		"before the process ends": func(d fixture) error { return d.FreeEnded(t.Context()) },
	} {
		d := newFixture(t)
		d.ended()
		if err := free(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left := d.work(); len(left) > 0 || d.isOpen() {
			t.Errorf("%s: %v is left, the run is open: %v", name, left, d.isOpen())
		}
		for _, key := range []string{record.FileEntriesKey(id), record.ShardTableKey(id, 0), record.IndexKey(id, 0)} {
			if _, err := d.Ports.Blobs.Stat(t.Context(), key, ""); err != nil {
				t.Errorf("%s: the index: %v", name, err)
			}
		}
	}
}

func TestNothingIsFreedThatHasNoReplacement(t *testing.T) {
	t.Parallel()
	remove := func(key string) func(d fixture) {
		return func(d fixture) { _ = d.Ports.Blobs.Delete(d.t.Context(), key, "") }
	}
	replace := func(key, text string) func(d fixture) {
		return func(d fixture) { remove(key)(d); hosttest.Put(d.t, d.Ports, key, text) }
	}
	for name, edit := range map[string]func(d fixture){
		"the summary is missing":         remove(record.OutputKey(id, record.SummaryFile)),
		"the completions are gone":       remove(record.OutputKey(id, record.CompletionsFile)),
		"the completions are shorter":    replace(record.OutputKey(id, record.CompletionsFile), "a"),
		"the errors have more":           replace(record.OutputKey(id, record.ErrorsFile), "b\nc\n"),
		"the entries are missing":        remove(record.FileEntriesKey(id)),
		"the entries are of more shards": replace(record.FileEntriesKey(id), strings.Repeat("x", 48)),
		"the run has not ended": func(d fixture) {
			s := hosttest.Load[run.State](d.t, d.Ports, record.CoordinatorKey(id))
			s.Phase = run.Finalizing
			d.save(record.CoordinatorKey(id), s)
		},
	} {
		d := newFixture(t)
		d.ended()
		before := d.work()
		edit(d)
		if err := d.Scan(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := NewFreer(d.Ports).FreeAll(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left := d.work(); !slices.Equal(left, before) || len(left) != 3 {
			t.Errorf("%s: %v is left of %v", name, left, before)
		}
	}
}

// failingBlobs is a bucket that fails from a number of deletions on.
type failingBlobs struct {
	blob.Store
	deletions *int
}

func (b failingBlobs) Delete(ctx context.Context, key, version string) error {
	if *b.deletions == 0 {
		return fault.New(fault.Unavailable, "the disk does not answer")
	}
	*b.deletions--
	return b.Store.Delete(ctx, key, version)
}

func TestInterruptedFreeingGoesOn(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		d := newFixture(t)
		d.ended()
		left := n
		p := d.Ports
		p.Blobs = failingBlobs{p.Blobs, &left}
		first := New(p, d.timings)
		first.FreeWith(NewFreer(p))
		if err := first.Scan(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("after %d deletions: %v", n, err)
		}
		if !d.isOpen() || len(d.work()) != 3-n {
			t.Errorf("after %d deletions %v is left, the run is open: %v", n, d.work(), d.isOpen())
		}
		if err := d.Scan(t.Context()); err != nil || d.isOpen() || len(d.work()) > 0 {
			t.Errorf("after another scan %v is left, the run is open: %v, %v", d.work(), d.isOpen(), err)
		}
	}
}

// A scan looks at a bounded number of objects of all runs, also of those that stay, and the
// next one goes on behind them.
func TestScansFreeAFewObjectsEach(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.ended()
	deletions := 100
	p := d.Ports
	p.Blobs = failingBlobs{p.Blobs, &deletions}
	r := New(p, d.timings)
	r.FreeWith(NewFreer(p))
	note, err := d.Ports.Docs.Get(t.Context(), record.OpenRunKey(id))
	if err != nil {
		t.Fatal(err)
	}
	objects := len(d.work())
	for _, dir := range record.PlanDirs(id) {
		infos, err := d.Ports.Blobs.List(t.Context(), dir, "", blob.MaxList)
		if err != nil {
			t.Fatal(err)
		}
		objects += len(infos)
	}
	for scans := 1; ; scans++ {
		before, most := deletions, checksCost+1
		freed, err := r.free(t.Context(), []document.Doc{note, note, note}, &most)
		if err != nil || before-deletions > 1 {
			t.Fatalf("scan %d deleted %d objects, %v", scans, before-deletions, err)
		}
		if len(freed) > 0 || scans > objects+1 {
			if scans < objects || len(freed) == 0 || len(d.work()) > 0 {
				t.Errorf("after %d scans of %d objects %v is left", scans, objects, d.work())
			}
			return
		}
	}
}

func TestResultOfALateWorkerIsFreed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.ended()
	if err := d.Scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := record.ShardObjectKey(id, 0, 1, "late")
	for name, free := range map[string]func(context.Context) error{
		"in an hour":        d.freer.FreeAgain,
		"at the next start": NewFreer(d.Ports).FreeAll,
	} {
		hosttest.Put(t, d.Ports, late, "a\n")
		if err := free(t.Context()); err != nil || len(d.work()) > 0 {
			t.Errorf("%s: %v is left, %v", name, d.work(), err)
		}
	}
}

// A freed run is looked at until an hour is over, and longer if that fails.
func TestFreedRunIsLookedAtForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.ended()
		deletions := 4
		p := d.Ports
		p.Clock = clock.System{}
		p.Blobs = failingBlobs{p.Blobs, &deletions}
		f := NewFreer(p)
		late := func() {
			t.Helper()
			hosttest.Put(t, d.Ports, record.ShardObjectKey(id, 0, 1, "late"), "a\n")
		}
		if err := f.Free(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		<-time.After(lookFor / 2)
		if err := f.FreeAgain(t.Context()); err != nil { // it finds nothing, and the hour is not over
			t.Error(err)
		}
		late()
		<-time.After(lookFor / 4)
		if err := f.FreeAgain(t.Context()); err != nil || len(d.work()) > 0 {
			t.Errorf("%v is left, %v", d.work(), err)
		}
		late()
		<-time.After(2 * lookFor)
		if err := f.FreeAgain(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("the look failed with %v", err)
		}
		deletions = 1
		if err := f.FreeAgain(t.Context()); err != nil || len(d.work()) > 0 {
			t.Errorf("after a failure %v is left, %v", d.work(), err)
		}
		<-time.After(lookFor)
		if err := f.FreeAgain(t.Context()); err != nil {
			t.Error(err)
		}
		late()
		if err := f.FreeAgain(t.Context()); err != nil || len(d.work()) != 1 {
			t.Errorf("a run that was freed long ago is looked at: %v is left, %v", d.work(), err)
		}
	})
}

// Of the lists of planning, those by which lines are found by their ids stay if they are small
// beside the answers.
func TestListsOfHashesAreFreed(t *testing.T) {
	t.Parallel()
	h := record.Hashes{From: 0, To: 2, Count: 1}
	kept := record.HashesKey(id, h, record.HashIDs)
	for name, c := range map[string]struct {
		size   int // of the list
		growth bool
		want   bool // it stays
	}{
		"a small list":                    {1 << 20, false, true},
		"a list larger than the answers":  {1<<20 + 1, false, false},
		"a plan that has not come to end": {1<<20 + 1, true, true},
	} {
		d := newFixture(t)
		d.ended()
		p := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(id))
		p.IDs, p.Growing = []record.Hashes{h}, c.growth
		d.save(record.PlanKey(id), p)
		superseded := []string{record.PlanHashesKey(id, 0, 0, record.HashIDs),
			record.HashesKey(id, record.Hashes{From: 0, To: 1}, record.HashIDs), record.HashesKey(id, h, record.HashRequests)}
		for _, key := range superseded {
			hosttest.Put(t, d.Ports, key, "x")
		}
		hosttest.Put(t, d.Ports, kept, strings.Repeat("x", c.size))
		repeats := record.RepeatsKey(id, 0, record.HashIDs)
		hosttest.Put(t, d.Ports, repeats, "x")
		if err := d.Scan(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		has := func(key string) bool {
			_, err := d.Ports.Blobs.Stat(t.Context(), key, "")
			return err == nil
		}
		if has(kept) != c.want || !has(repeats) {
			t.Errorf("%s: the list is there: %v, the repeats: %v", name, has(kept), has(repeats))
		}
		freed := func(when string) {
			t.Helper()
			for _, key := range superseded {
				if has(key) != c.growth {
					t.Errorf("%s, %s: %s is there: %v", name, when, key, has(key))
				}
			}
		}
		freed("by a scan")
		for _, key := range superseded {
			if !c.growth {
				hosttest.Put(t, d.Ports, key, "x")
			}
		}
		if err := NewFreer(d.Ports).FreeAll(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		freed("at the next start")
		if has(kept) != c.want || !has(repeats) {
			t.Errorf("%s, at the next start: the list is there: %v, the repeats: %v", name, has(kept), has(repeats))
		}
	}
}
