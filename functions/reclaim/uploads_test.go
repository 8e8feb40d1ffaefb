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

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// bucketName is the deployment's name of the tests' bucket.
const bucketName = "acme"

// upload puts a prompts file, whose event is lost.
func (d fixture) upload(key string) {
	d.t.Helper()
	hosttest.Put(d.t, d.Ports, key, "{\"prompt\":\"x\"}\n")
}

// becomesRun makes the run of the current version of an object.
func (d fixture) becomesRun(key string) {
	d.t.Helper()
	info, err := d.Ports.Blobs.Stat(d.t.Context(), key, "")
	if err != nil {
		d.t.Fatal(err)
	}
	id := identity.UploadRun(bucketName, key, info.Version)
	d.save(record.ManifestKey(id), record.Manifest{Schema: 1, Run: id})
}

// resent scans with the options and returns the keys of the uploads whose events it sent.
func (d fixture) resent(o UploadOptions) (keys []string) {
	d.t.Helper()
	o.Bucket = bucketName
	if err := ScanUploads(d.t.Context(), d.Ports, o); err != nil {
		d.t.Error(err)
	}
	return d.created()
}

// created returns the keys of the uploads whose events wait.
func (d fixture) created() (keys []string) {
	d.t.Helper()
	for _, p := range d.received(host.TaskQueue) {
		e, ok := p.(events.ObjectCreated)
		info, err := d.Ports.Blobs.Stat(d.t.Context(), e.Key, "")
		if !ok || err != nil || e.Bucket != bucketName || e.Version != info.Version || e.Size != info.Size {
			d.t.Errorf("sent %+v for %+v, %v", p, info, err)
		}
		keys = append(keys, e.Key)
	}
	slices.Sort(keys)
	return keys
}

func TestUploadWithoutRunIsAnnouncedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.upload("prompts/lost.jsonl")
		d.upload("prompts/run.jsonl")
		d.becomesRun("prompts/run.jsonl")
		d.upload("prompts/overwritten.jsonl")
		d.becomesRun("prompts/overwritten.jsonl")
		d.upload("prompts/moved.jsonl")
		moved, err := d.Ports.Blobs.Stat(t.Context(), "prompts/moved.jsonl", "")
		if err != nil {
			t.Fatal(err)
		}
		d.save(record.FoundKey(identity.UploadRun(bucketName, moved.Key, moved.Version)),
			record.FoundInput{Schema: 1, Run: id})
		d.upload("prompts/deleted.jsonl.gz")
		for _, key := range []string{"prompts/lost.toml", "prompts/notes.txt", "prompts/.hidden/x.jsonl", "runs/x.jsonl"} {
			if !strings.Contains(key, "/.") {
				d.upload(key)
			}
		}
		<-time.After(10 * time.Minute)
		d.upload("prompts/overwritten.jsonl")
		if err := d.Ports.Blobs.Delete(t.Context(), "prompts/deleted.jsonl.gz", ""); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Minute)
		d.upload("prompts/young.jsonl.zst")
		if got := d.resent(UploadOptions{}); !slices.Equal(got, []string{"prompts/lost.jsonl"}) {
			t.Errorf("announced %q", got)
		}
		if !strings.Contains(d.log.String(), "level=WARN") || !strings.Contains(d.log.String(), "prompts/lost.jsonl") {
			t.Errorf("the log says %q", d.log)
		}
		d.becomesRun("prompts/lost.jsonl")
		<-time.After(UploadScanInterval)
		want := []string{"prompts/overwritten.jsonl", "prompts/young.jsonl.zst"}
		if got := d.resent(UploadOptions{}); !slices.Equal(got, want) {
			t.Errorf("an hour later announced %q, want %q", got, want)
		}
	})
}

// writtenBlobs is a bucket one of whose objects a program writes.
type writtenBlobs struct {
	blob.Store
	written string
}

func (b writtenBlobs) Unsettled(_ context.Context, key string) (string, error) {
	if key == b.written {
		return "cat (process 7) has it open for writing", nil
	}
	return "", nil
}

func TestUploadThatIsStillWrittenIsNotAnnouncedByTheScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.upload("prompts/lost.jsonl")
		d.upload("prompts/written.jsonl")
		d.Ports.Blobs = writtenBlobs{d.Ports.Blobs, "prompts/written.jsonl"}
		<-time.After(20 * time.Minute)
		if got := d.resent(UploadOptions{}); !slices.Equal(got, []string{"prompts/lost.jsonl"}) {
			t.Errorf("announced %q", got)
		}
	})
}

func TestUploadIsAnnouncedOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.upload("prompts/x.jsonl")
		<-time.After(time.Hour)
		n := 0
		for range 5 * 60 {
			n += len(d.resent(UploadOptions{}))
			<-time.After(time.Minute)
		}
		if n < 5 || n > 6 {
			t.Errorf("announced %d times in five hours", n)
		}
	})
}

// In a cloud's bucket lie files of the time before the installation.
func TestScheduledScanLooksAtUploadsOfTheInstallationOfTheLastWeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.upload("prompts/before.jsonl")
		<-time.After(3 * time.Hour)
		d.upload("prompts/after.jsonl") // while the stack was made
		<-time.After(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 30*time.Second)))
		d.once()
		if got := d.created(); !slices.Equal(got, []string{"prompts/after.jsonl"}) {
			t.Errorf("announced %q", got)
		}
		last := time.Now()
		for range 8 * 24 {
			<-time.After(time.Hour)
			d.once()
			for _, key := range d.created() {
				last = time.Now()
				if key != "prompts/after.jsonl" {
					t.Fatalf("announced %s", key)
				}
			}
		}
		if age := time.Since(last); age < 24*time.Hour || age > 26*time.Hour {
			t.Errorf("announced last %v ago, want one day: it is then older than a week", age)
		}
	})
}

// numbered is a bucket of that many prompts files, whose keys are their numbers.
type numbered struct {
	blob.Store
	objects, listed int
}

func (b *numbered) at(n int) blob.Info {
	return blob.Info{Key: fmt.Sprintf("prompts/%05d.jsonl", n), Version: "v", Size: 7}
}

func (b *numbered) List(_ context.Context, prefix, after string, limit int) (infos []blob.Info, err error) {
	first := 0
	if _, err := fmt.Sscanf(after, prefix+"%05d.jsonl", &first); err == nil {
		first++
	}
	for n := first; n < min(b.objects, first+limit); n++ {
		infos = append(infos, b.at(n))
	}
	b.listed += len(infos)
	return infos, nil
}

func (b *numbered) Stat(_ context.Context, key, _ string) (i blob.Info, err error) {
	n := 0
	_, err = fmt.Sscanf(key, "prompts/%05d.jsonl", &n)
	return b.at(n), err
}

// A scan is bounded, in what it reads and in what it sends. The next one goes on where it
// stopped, and then begins again.
func TestUploadScanIsBoundedAndGoesOn(t *testing.T) {
	t.Parallel()
	const objects = 2*maxResent + maxUploadPages*uploadPage + 1500
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		bucket := &numbered{Store: d.Ports.Blobs, objects: objects}
		d.Ports.Blobs = bucket
		for n := 2 * maxResent; n < objects-3; n++ {
			d.becomesRun(bucket.at(n).Key)
		}
		for scan, want := range []struct{ first, sent, listed int }{
			{0, maxResent, uploadPage},
			{maxResent, maxResent, uploadPage},
			{0, 0, maxUploadPages * uploadPage},
			{objects - 3, 3, 1500},
			{0, 0, maxUploadPages * uploadPage}, // from the beginning
		} {
			<-time.After(UploadScanInterval)
			bucket.listed = 0
			got := d.resent(UploadOptions{})
			if len(got) != want.sent || bucket.listed != want.listed {
				t.Errorf("scan %d announced %d and read %d, want %+v", scan, len(got), bucket.listed, want)
			}
			if len(got) > 0 && got[0] != bucket.at(want.first).Key {
				t.Errorf("scan %d began with %s, want number %d", scan, got[0], want.first)
			}
			for _, key := range got {
				d.becomesRun(key)
			}
		}
	})
}

func TestBucketOfAnotherInstallationIsNotScanned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.upload("prompts/x.jsonl")
		<-time.After(time.Hour)
		foreign := errors.New("it belongs to another")
		o := UploadOptions{Bucket: bucketName, CheckOwner: func(context.Context) error { return foreign }}
		if err := ScanUploads(t.Context(), d.Ports, o); !errors.Is(err, foreign) {
			t.Errorf("got %v", err)
		}
		if got := d.created(); len(got) > 0 {
			t.Errorf("announced %q", got)
		}
	})
}

// failing is a bucket that cannot be listed.
type failing struct {
	blob.Store
	err error
}

func (f failing) List(context.Context, string, string, int) ([]blob.Info, error) { return nil, f.err }

func TestFailedUploadScanIsMadeAnHourLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.upload("prompts/x.jsonl")
		<-time.After(time.Hour)
		store, broken := d.Ports.Blobs, errors.New("broken")
		d.Ports.Blobs = failing{store, broken}
		if err := ScanUploads(t.Context(), d.Ports, UploadOptions{Bucket: bucketName}); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		d.Ports.Blobs = store
		<-time.After(UploadScanInterval)
		if got := d.resent(UploadOptions{}); len(got) != 1 {
			t.Errorf("announced %q", got)
		}
	})
}
