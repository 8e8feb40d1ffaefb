package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// fileID returns the id of an uploaded file.
func fileID(n int) string { return fmt.Sprintf("file-%026d", n) }

// fileOf saves the document of a file whose bytes are an object.
func (d fixture) fileOf(id, key string) {
	d.save(record.FileKey(id), record.File{Schema: 1, ID: id, Input: record.Input{Key: key}})
}

// uploadOf saves the document of an upload that is created now.
func (d fixture) uploadOf(id, status string) {
	d.save(record.UploadKey(id), record.Upload{Schema: 1, ID: id, Created: d.Ports.Clock.Now().UTC(), Status: status})
}

// stored are the keys of the objects and of the documents of uploads that are left.
func (d fixture) stored() (keys []string) {
	d.t.Helper()
	infos, err := d.Ports.Blobs.List(d.t.Context(), "", "", blob.MaxList)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, i := range infos {
		keys = append(keys, i.Key)
	}
	for doc, err := range document.All(d.t.Context(), d.Ports.Docs, record.UploadPrefix) {
		if err != nil {
			d.t.Fatal(err)
		}
		keys = append(keys, doc.Key)
	}
	return keys
}

// sweeps sweeps orphans, and checks what is left.
func (d fixture) sweeps(o SweepOptions, want ...string) {
	d.t.Helper()
	if err := SweepOrphans(d.t.Context(), d.Ports, o); err != nil {
		d.t.Error(err)
	}
	if got := d.stored(); !slices.Equal(got, want) {
		d.t.Errorf("it left\n%q, want\n%q", got, want)
	}
}

func TestSweepDeletesWhatUploadsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.sweeps(SweepOptions{}) // it remembers since when there are documents
		part := record.UploadPartKey("upload_A", "part_A")
		direct, joined, other := "files/"+fileID(1)+".jsonl", "files/"+fileID(2)+".0123456789abcdef.jsonl.gz",
			"files/"+fileID(2)+".ffffffffffffffff.jsonl.gz"
		file := "files/" + fileID(3) + ".jsonl"
		kept := []string{"cas/aa/bb/x", other, file, "files/" + fileID(3) + ".jsonl.sha256", "files/" + fileID(3) + ".toml",
			"files/mine/" + fileID(4) + ".jsonl", "files/note.txt", "pending/clock-1", "prompts/" + fileID(5) + ".jsonl"}
		for _, key := range append(slices.Clone(kept), part, direct, joined) {
			hosttest.Put(t, d.Ports, key, "x")
		}
		d.fileOf(fileID(3), file)
		d.fileOf(fileID(2), other) // another claim of the upload has made the file
		d.uploadOf("upload_A", "pending")
		d.uploadOf("upload_B", "completed")
		docs := []string{"upload/upload_A", "upload/upload_B"}
		all := slices.Sorted(slices.Values(append(slices.Clone(kept), part, direct, joined)))

		<-time.After(2*time.Hour - time.Second)
		d.sweeps(SweepOptions{}, append(all, docs...)...)
		<-time.After(time.Second)
		all = slices.DeleteFunc(all, func(key string) bool { return key == part })
		d.sweeps(SweepOptions{}, append(all, docs...)...)
		<-time.After(24*time.Hour - time.Second)
		d.sweeps(SweepOptions{}, append(all, docs...)...)
		<-time.After(time.Second)
		d.sweeps(SweepOptions{}, kept...)
		<-time.After(1000 * time.Hour)
		d.sweeps(SweepOptions{}, kept...)
	})
}

// Documents that were lost, or restored from a backup, know nothing of files that are there: a sweep
// leaves these.
func TestSweepLeavesFilesThatLostDocumentsKnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		before, after := "files/"+fileID(1)+".jsonl", "files/"+fileID(2)+".jsonl"
		hosttest.Put(t, d.Ports, before, "x")
		<-time.After(100 * time.Hour)
		d.sweeps(SweepOptions{}, before)
		hosttest.Put(t, d.Ports, after, "x")
		<-time.After(100 * time.Hour)
		if err := ForgetSweeps(t.Context(), d.Ports.Docs); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			d.sweeps(SweepOptions{}, before, after)
			<-time.After(100 * time.Hour)
		}
		if err := errors.Join(ForgetSweeps(t.Context(), d.Ports.Docs), ForgetSweeps(t.Context(), d.Ports.Docs)); err != nil {
			t.Errorf("forgetting twice: %v", err)
		}
	})
}

// A document that can't be read, of a later version for example, keeps its object, and holds up no
// other.
func TestSweepPassesWhatItCantRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.sweeps(SweepOptions{})
		known, orphan, part := "files/"+fileID(1)+".jsonl", "files/"+fileID(2)+".jsonl", record.UploadPartKey("upload_A", "p")
		for _, key := range []string{known, orphan, part} {
			hosttest.Put(t, d.Ports, key, "x")
		}
		for _, key := range []string{record.FileKey(fileID(1)), record.UploadKey("upload_A")} {
			if _, err := d.Ports.Docs.Create(t.Context(), key, []byte(`{"schema":99}`)); err != nil {
				t.Fatal(err)
			}
		}
		d.uploadOf("upload_B", "completed")
		<-time.After(100 * time.Hour)
		d.sweeps(SweepOptions{}, known, "upload/upload_A")
	})
}

// slowBlobs deletes each object in a second.
type slowBlobs struct{ blob.Store }

func (b slowBlobs) Delete(ctx context.Context, key, version string) error {
	select {
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, ctx.Err(), "delete")
	case <-time.After(time.Second):
		return b.Store.Delete(ctx, key, version)
	}
}

// A sweep that takes too long ends without an error, and the next one goes on.
func TestSweepEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		for n := range 1000 {
			hosttest.Put(t, d.Ports, record.UploadPartKey("upload_A", fmt.Sprintf("part_%06d", n)), "x")
		}
		<-time.After(partAge)
		d.Ports.Blobs = slowBlobs{d.Ports.Blobs}
		left := 1000
		for sweeps := 0; left > 0; sweeps++ {
			began := time.Now()
			if err := SweepOrphans(t.Context(), d.Ports, SweepOptions{Longest: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got > 10*time.Second {
				t.Errorf("a sweep took %s", got)
			}
			if now := len(d.stored()); now < left && sweeps < 100 {
				left = now
			} else {
				t.Fatalf("sweep %d leaves %d of %d objects", sweeps, now, left)
			}
		}
	})
}

// A cloud pays for each sweep.
func TestSweepsKeepTheirDistance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, daily := newFixture(t), SweepOptions{Every: 23 * time.Hour}
		d.sweeps(daily)
		key := record.UploadPartKey("upload_A", "part_A")
		hosttest.Put(t, d.Ports, key, "x")
		<-time.After(23*time.Hour - time.Second)
		d.sweeps(daily, key)
		<-time.After(time.Second)
		d.sweeps(daily)
		hosttest.Put(t, d.Ports, key, "x")
		<-time.After(23 * time.Hour)
		foreign := fault.New(fault.Denied, "the bucket is another installation's")
		err := SweepOrphans(t.Context(), d.Ports, SweepOptions{CheckOwner: func(context.Context) error { return foreign }})
		if !fault.Is(err, fault.Denied) || len(d.stored()) != 1 {
			t.Errorf("of another installation's bucket it says %v, and leaves %q", err, d.stored())
		}
	})
}

// pagedBlobs counts the pages that are listed.
type pagedBlobs struct {
	blob.Store
	pages *int
}

func (b pagedBlobs) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	*b.pages++
	return b.Store.List(ctx, prefix, after, limit)
}

// However much there is, a sweep is short, and the next one goes on: at the end all is looked at.
func TestSweepsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		const parts = 2*maxSwept + 1
		for n := range parts {
			hosttest.Put(t, d.Ports, record.UploadPartKey("upload_A", fmt.Sprintf("part_%06d", n)), "x")
		}
		<-time.After(partAge)
		young := record.UploadPartKey("upload_Z", "part_A")
		hosttest.Put(t, d.Ports, young, "x")
		pages := 0
		d.Ports.Blobs = pagedBlobs{d.Ports.Blobs, &pages}
		for n, want := range []int{parts + 1 - maxSwept, parts + 1 - 2*maxSwept, 1} {
			pages = 0
			if err := SweepOrphans(t.Context(), d.Ports, SweepOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := len(d.stored()); got != want || pages > maxSwept/uploadPage+3 {
				t.Errorf("sweep %d leaves %d objects and lists %d pages, want %d objects", n, got, pages, want)
			}
		}
		if got := d.stored(); !strings.HasSuffix(got[0], "upload_Z/part_A") {
			t.Errorf("%q is left", got)
		}
	})
}

// expiringFile saves a file with its object, which expires after that time; 0 never.
func (d fixture) expiringFile(n int, after time.Duration) (object string) {
	d.t.Helper()
	object = "files/" + fileID(n) + ".jsonl"
	hosttest.Put(d.t, d.Ports, object, "x")
	now := d.Ports.Clock.Now().UTC()
	f := record.File{Schema: 1, ID: fileID(n), Created: now, Input: record.Input{Key: object}}
	if after > 0 {
		f.Expires = now.Add(after)
	}
	d.save(record.FileKey(f.ID), f)
	return object
}

// files returns the keys of the documents of files.
func (d fixture) files() (keys []string) {
	d.t.Helper()
	for doc, err := range document.All(d.t.Context(), d.Ports.Docs, record.FilePrefix) {
		if err != nil {
			d.t.Fatal(err)
		}
		keys = append(keys, doc.Key)
	}
	return keys
}

// A file that has expired is deleted a day later, with its object, and no file that lasts.
func TestSweepDeletesExpiredFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.sweeps(SweepOptions{})
		forever, hour, day := d.expiringFile(1, 0), d.expiringFile(2, time.Hour), d.expiringFile(3, 24*time.Hour)
		const foreign = "prompts/x.jsonl" // a damaged document names it
		hosttest.Put(t, d.Ports, foreign, "x")
		d.save(record.FileKey(fileID(4)), record.File{Schema: 1, ID: fileID(4), Created: d.Ports.Clock.Now(),
			Expires: d.Ports.Clock.Now().Add(time.Hour), Input: record.Input{Key: foreign}})
		<-time.After(27*time.Hour - time.Second)
		d.sweeps(SweepOptions{}, forever, hour, day, foreign)
		<-time.After(time.Second)
		d.sweeps(SweepOptions{}, forever, day, foreign)
		<-time.After(1000 * time.Hour)
		d.sweeps(SweepOptions{}, forever, foreign)
		if got, want := d.files(), []string{record.FileKey(fileID(1)), record.FileKey(fileID(4))}; !slices.Equal(got, want) {
			t.Errorf("the documents %q are left, want %q", got, want)
		}
	})
}

// An expired file that an open run reads stays until the run has ended; and all expired files do
// while a sweep can't tell what is read.
func TestSweepLeavesExpiredFilesThatRunsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.sweeps(SweepOptions{})
		read, other := d.expiringFile(1, time.Hour), d.expiringFile(2, time.Hour)
		const id = identity.RunID("01J00000000000000000000001")
		d.save(record.ManifestKey(id), record.Manifest{Schema: 1, Run: id, Inputs: []record.Input{{Key: read}}})
		d.save(record.OpenRunKey(id), record.OpenRun{Schema: 1, At: d.Ports.Clock.Now()})
		const damaged = identity.RunID("01J00000000000000000000002")
		if _, err := d.Ports.Docs.Create(t.Context(), record.ManifestKey(damaged), []byte("{")); err != nil {
			t.Fatal(err)
		}
		d.save(record.OpenRunKey(damaged), record.OpenRun{Schema: 1, At: d.Ports.Clock.Now()})
		<-time.After(100 * time.Hour)
		d.sweeps(SweepOptions{}, read, other)
		d.remove(record.OpenRunKey(damaged))
		d.sweeps(SweepOptions{}, read)
		d.remove(record.OpenRunKey(id))
		d.sweeps(SweepOptions{})
		if got := d.files(); len(got) != 0 {
			t.Errorf("the documents %q are left", got)
		}
	})
}

// remove deletes a document.
func (d fixture) remove(key string) {
	d.t.Helper()
	doc, err := d.Ports.Docs.Get(d.t.Context(), key)
	if err == nil {
		err = d.Ports.Docs.Delete(d.t.Context(), key, doc.Revision)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// Files that expired before a backup was restored stay for another day, so that people may copy them.
func TestSweepLeavesRestoredFilesForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		file := d.expiringFile(1, time.Hour)
		<-time.After(1000 * time.Hour)
		if err := ForgetSweeps(t.Context(), d.Ports.Docs); err != nil {
			t.Fatal(err)
		}
		d.sweeps(SweepOptions{}, file)
		<-time.After(26*time.Hour - time.Second)
		d.sweeps(SweepOptions{}, file)
		<-time.After(time.Second)
		d.sweeps(SweepOptions{})
	})
}

// However many files there are, and however slow the store is, sweeps come to an end.
func TestSweepsOfExpiredFilesGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		const files = 1500
		for n := range files {
			d.expiringFile(n, time.Hour)
		}
		<-time.After(27 * time.Hour)
		d.Ports.Blobs = slowBlobs{d.Ports.Blobs}
		sweeps := 0
		for left := files; left > 0; sweeps++ {
			if err := SweepOrphans(t.Context(), d.Ports, SweepOptions{Longest: 10 * time.Second}); err != nil {
				t.Fatal(err)
			}
			now := len(d.files())
			if now >= left && sweeps > 0 { // the first one says since when there are documents
				t.Fatalf("sweep %d leaves %d of %d files", sweeps, now, left)
			}
			left = now
			<-time.After(27 * time.Hour)
		}
	})
}
