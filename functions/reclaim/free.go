package reclaim

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Freer deletes the work files of ended runs that nothing reads any more: the results and
// checkpoints of shards, and the files that a training left for users, which are in the run's
// output files now. It is safe for concurrent use.
//
//	ended run ─▶ files, entries and summary are there? ─▶ list ─▶ delete ─▶ leaves the index of open runs
//	                     │ no
//	                     └─▶ keep everything
//
// What stays is what a retry, show and explain read: the plan, the entries of the output files
// (record.FileEntriesKey), which say where the rows of each shard are in them, unpacked inputs,
// what a plan appended, and the results of roles besides the answer, whose rows are in no
// output file. Of the lists of hashes by which planning compares lines, those stay with which
// show finds a line by its id, if they are small beside the answers.
//
// Finalize has written files, entries and summary durably before the run counts as ended, so
// that a crash at any time leaves either the work files or what replaces them. Freeing again
// continues where a crash ended it, and deletes what a worker that was thought dead has written
// since.
type Freer struct {
	host.Ports
	index *input.Index

	mu     sync.Mutex
	recent []freedRun               // runs that were freed, the latest last, at most maxRecent
	places map[identity.RunID]place // of the runs that scans have freed in part
}

// freedRun is a run that was freed, and when.
type freedRun struct {
	run identity.RunID
	at  time.Time
}

// place is how far a run was freed.
type place struct {
	dir     int    // of the prefixes whose objects are looked at
	after   string // the key that was looked at last; "" before the first
	objects int    // that were deleted
	bytes   int64  // of these
}

// maxRecent bounds the runs that FreeAgain looks at, and lookFor is how long it looks at one
// after it was freed.
const (
	maxRecent = 1024
	lookFor   = time.Hour
)

// freePage is how many objects are listed at once.
const freePage = 1000

// NewFreer returns a freer.
func NewFreer(p host.Ports) *Freer {
	return &Freer{Ports: p.WithSource("reclaim"), index: input.NewIndex(p.Blobs, p.Docs),
		places: map[identity.RunID]place{}}
}

// FreeWith has each scan free the work files of runs that have ended, before these leave the
// index of open runs. Call it before the first scan.
func (r *Reclaimer) FreeWith(f *Freer) { r.freer = f }

// FreeEnded frees the work files of the ended runs that are still in the index of open runs,
// for a process that ends before its next scan.
func (r *Reclaimer) FreeEnded(ctx context.Context) error {
	if r.freer == nil {
		return nil
	}
	var ended []document.Doc
	for note, err := range document.All(ctx, r.Docs, record.OpenRunPrefix) {
		if err != nil {
			return err
		}
		id, _ := record.RunFromKey(note.Key)
		var s run.State
		if _, _, err := host.Load(ctx, r.Docs, record.CoordinatorKey(id), &s); err != nil {
			return err
		}
		if s.Phase.Ended() {
			ended = append(ended, note)
		}
	}
	most := math.MaxInt
	freed, err := r.free(ctx, ended, &most)
	return errors.Join(err, r.moveEnded(ctx, freed))
}

// FreeAgain looks again at the runs that were freed last, for objects that a worker wrote
// since: one that was stopped while its run ended, and continued. It looks at a run until one
// look came an hour after it was freed, and did not fail for a cause that passes. Call it every
// hour.
func (f *Freer) FreeAgain(ctx context.Context) (failed error) {
	now := f.Clock.Now()
	f.mu.Lock()
	recent := slices.Clone(f.recent)
	f.mu.Unlock()
	for _, r := range recent {
		err := f.freeLeft(ctx, r.run)
		if !passes(ctx, err) && now.Sub(r.at) >= lookFor {
			f.forget(r)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// passes reports whether an error of freeing has a cause that passes, so that it is tried again.
func passes(ctx context.Context, err error) bool {
	return ctx.Err() != nil || fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Throttled)
}

// forget has FreeAgain look no more at the run, unless it was freed again.
func (f *Freer) forget(r freedRun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent = slices.DeleteFunc(f.recent, func(x freedRun) bool { return x == r })
}

// FreeAll frees the work files of every run that has ended: of runs of a version that kept
// them, of those that kept them by the config, and what workers wrote after the end. Call it
// once, when a process starts.
func (f *Freer) FreeAll(ctx context.Context) error {
	return host.Each(ctx, f.Docs, record.ManifestPrefix, func(m record.Manifest) error {
		err := f.freeLeft(ctx, m.Run)
		if err != nil && ctx.Err() == nil { // its files were changed: one run keeps no other from being freed
			f.Log.DebugContext(ctx, "work files of an ended run are kept", observe.KeyRun, m.Run, observe.KeyError, err)
			err = nil
		}
		return err
	})
}

// freeLeft frees a run that has work files, if it has ended.
func (f *Freer) freeLeft(ctx context.Context, id identity.RunID) error {
	for _, dir := range freedDirs(id) {
		infos, err := f.Blobs.List(ctx, dir, "", 1)
		if err != nil || len(infos) > 0 {
			return errors.Join(err, f.Free(ctx, id))
		}
	}
	left, err := f.listsLeft(ctx, id)
	if err != nil || !left {
		return err
	}
	return f.Free(ctx, id)
}

// freedDirs are the prefixes under which objects are freed.
func freedDirs(id identity.RunID) [2]string {
	return [...]string{record.ShardObjectsDir(id), record.TrainingFilesDir(id)}
}

// Free frees the work files of a run. It leaves those of a run that has not ended, or whose
// output files or entries are not whole. Repeating it is harmless.
func (f *Freer) Free(ctx context.Context, id identity.RunID) error {
	most := math.MaxInt
	_, err := f.freeSome(ctx, id, &most)
	return err
}

// freeSome is Free, but looks at most at so many objects, which it subtracts, and counts its
// checks as some. It goes on where the last call for the run ended, and reports whether the
// run is freed.
func (f *Freer) freeSome(ctx context.Context, id identity.RunID, most *int) (done bool, err error) {
	*most -= checksCost
	m, err := host.LoadManifest(ctx, f.Docs, id)
	if errors.Is(err, host.ErrNoRun) || err == nil && m.Refused != "" {
		return true, nil
	}
	var s run.State
	if err == nil {
		_, _, err = host.Load(ctx, f.Docs, record.CoordinatorKey(id), &s)
	}
	if err != nil || !s.Phase.Ended() {
		return false, err
	}
	if err := f.checkFiles(ctx, s); err != nil {
		return false, fault.Wrap(err, "check the output files of run %s", id)
	}
	lists, err := f.idLists(ctx, id)
	if err != nil {
		return false, err
	}
	at := f.takePlace(id)
	dirs, plan := freedDirs(id), record.PlanDirs(id)
	for _, dir := range slices.Concat(dirs[:], plan[:])[at.dir:] {
		for more := true; more; {
			if *most <= 0 {
				f.keepPlace(id, at)
				return false, nil
			}
			page := min(freePage, *most)
			infos, err := f.Blobs.List(ctx, dir, at.after, page)
			if err != nil {
				return false, err
			}
			for _, info := range infos {
				needed, err := f.needed(ctx, m, lists, info.Key)
				if err == nil && !needed {
					err = f.Blobs.Delete(ctx, info.Key, "")
					at.objects, at.bytes = at.objects+1, at.bytes+info.Size
				}
				if err != nil {
					return false, fault.Wrap(err, "free %s", info.Key)
				}
				at.after, *most = info.Key, *most-1
			}
			more = len(infos) == page
		}
		at.dir, at.after = at.dir+1, ""
	}
	if at.objects > 0 {
		f.Log.DebugContext(ctx, "work files freed", observe.KeyRun, id, "objects", at.objects, "bytes", at.bytes)
	}
	f.remember(id)
	return true, nil
}

// takePlace returns how far the run was freed, and forgets it: after an error, freeing begins
// again.
func (f *Freer) takePlace(id identity.RunID) place {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.places[id]
	delete(f.places, id)
	return at
}

func (f *Freer) keepPlace(id identity.RunID, at place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places[id] = at
}

// remember has FreeAgain look at the run.
func (f *Freer) remember(id identity.RunID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent = slices.DeleteFunc(f.recent, func(r freedRun) bool { return r.run == id })
	f.recent = append(f.recent, freedRun{id, f.Clock.Now()})
	if len(f.recent) > maxRecent {
		f.recent = f.recent[1:]
	}
}

// checkFiles returns an error unless what replaces the work files is there: the output files
// with as many bytes as their entries say, an entry for each shard, and the summary.
func (f *Freer) checkFiles(ctx context.Context, s run.State) error {
	size := func(key string) (uint64, error) {
		info, err := f.Blobs.Stat(ctx, key, "")
		return uint64(info.Size), err
	}
	if _, err := size(record.OutputKey(s.Run, record.SummaryFile)); err != nil {
		return err
	}
	entries, err := size(record.FileEntriesKey(s.Run))
	if err == nil && entries != uint64(s.Shards)*shardtable.FileEntrySize {
		err = fault.New(fault.Corrupt, "%s does not have %d entries", record.FileEntriesKey(s.Run), s.Shards)
	}
	if err != nil {
		return err
	}
	end, err := f.end(ctx, s)
	if err != nil {
		return err
	}
	for file, want := range map[string]uint64{
		record.CompletionsFile: end.Outputs, record.ErrorsFile: end.Errors,
	} {
		got, err := size(record.OutputKey(s.Run, file))
		if err == nil && got != want {
			err = fault.New(fault.Corrupt, "%s has %d bytes, and its entries have %d", record.OutputKey(s.Run, file), got, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end adds up the entries of all shards.
func (f *Freer) end(ctx context.Context, s run.State) (sum shardtable.FileEntry, err error) {
	const atOnce = 4096
	for lo := 0; lo < s.Shards; lo += atOnce {
		n := min(atOnce, s.Shards-lo)
		b, err := input.ReadPart(ctx, f.Blobs, record.FileEntriesKey(s.Run), int64(lo)*shardtable.FileEntrySize,
			int64(n)*shardtable.FileEntrySize)
		if err != nil {
			return sum, err
		}
		for ; len(b) > 0; b = b[shardtable.FileEntrySize:] {
			e := shardtable.ParseFileEntry(b)
			sum.Outputs, sum.Errors = sum.Outputs+e.Outputs, sum.Errors+e.Errors
		}
	}
	return sum, nil
}

// freedAtOnce bounds the objects that a scan looks at, of all runs together: its other checks
// wait, and a scan that takes too long would be taken for a suspend. checksCost is how many
// objects the checks of a run count for.
const (
	freedAtOnce = 2000
	checksCost  = 10
)

// free frees the work files of runs that have ended, and looks at most at so many objects,
// which it subtracts. It returns the notes of the runs of which all are freed; the next calls
// free the others. What can't be freed is kept until the next start, and the reason is logged.
func (r *Reclaimer) free(ctx context.Context, ended []document.Doc, most *int) (freed []document.Doc, failed error) {
	if r.freer == nil {
		return ended, nil
	}
	for _, note := range ended {
		if *most <= 0 {
			break
		}
		id, _ := record.RunFromKey(note.Key)
		done, err := r.freer.freeSome(ctx, id, most)
		switch {
		case passes(ctx, err):
			failed = errors.Join(failed, err)
			continue
		case err != nil:
			r.Log.WarnContext(ctx, "work files of an ended run are kept", observe.KeyRun, id, observe.KeyError, err)
		case !done:
			continue
		}
		freed = append(freed, note)
	}
	return freed, failed
}
