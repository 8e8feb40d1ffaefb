package reclaim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/blob"
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
		part := record.UploadPartKey("upload_A", "part_A")
		direct, joined, other := "files/"+fileID(1)+".jsonl", "files/"+fileID(2)+".0123456789abcdef.jsonl.gz",
			"files/"+fileID(2)+".ffffffffffffffff.jsonl.gz"
		file := "files/" + fileID(3) + ".jsonl"
		kept := []string{"cas/aa/bb/x", other, file, "files/mine/" + fileID(4) + ".jsonl",
			"files/note.txt", "pending/clock-1", "prompts/" + fileID(5) + ".jsonl"}
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
