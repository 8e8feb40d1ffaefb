package bucket_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/embedded/bucket"
	"rollout/shared/fault"
)

// putText puts a small object.
func putText(t *testing.T, b *bucket.Bucket, key, content string, o blob.PutOptions) (blob.Info, error) {
	t.Helper()
	return b.Put(t.Context(), key, strings.NewReader(content), o)
}

// temps returns the files with hidden names in the bucket, at any depth.
func temps(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPutsLeaveNoTemporaryFiles(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	refused := func(_ any, err error) {
		t.Helper()
		if err == nil {
			t.Error("want an error")
		}
	}
	ok(putText(t, b, "a/b", "x", blob.PutOptions{}))
	ok(putText(t, b, "a/c", "x", blob.PutOptions{CreateOnly: true}))
	refused(putText(t, b, "a/c", "x", blob.PutOptions{CreateOnly: true}))
	refused(putText(t, b, "a", "x", blob.PutOptions{}))
	refused(b.Put(t.Context(), "d", io.MultiReader(strings.NewReader("x"), &failingReader{}), blob.PutOptions{}))
	refused(b.Join(t.Context(), "e", []blob.Range{{Key: "a/b"}, {Key: "absent"}}))
	refused(bucket.PutFile(t.Context(), b.Dir(), filepath.Join(b.Dir(), "a"), "f", blob.PutOptions{}))
	if left := temps(t, b.Dir()); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// failingReader fails at once.
type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, fmt.Errorf("no more") }

// Deleting the last object of a folder removes the folder. Here a goroutine removes empty
// folders all the time, so that a folder disappears at every step of a put, but less often
// than a put retries.
func TestPutCreatesRemovedFolderAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := openBucket(t, dir)
	puts, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range puts {
			for range 30 {
				for _, folder := range []string{"a/b/c/d", "a/b/c", "a/b"} {
					_ = os.Remove(filepath.Join(dir, folder)) // if it is empty
				}
			}
		}
	}()
	defer func() { close(puts); <-ended }()
	for i := range 300 {
		key := fmt.Sprintf("a/b/c/d/%d", i)
		for _, o := range []blob.PutOptions{{CreateOnly: true}, {}} {
			puts <- struct{}{}
			if _, err := putText(t, b, key, "x", o); err != nil {
				t.Fatal(err)
			}
			if err := b.Delete(t.Context(), key, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestTemporaryFilesAreHiddenAndRemovedWhenOld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := openBucket(t, dir)
	if _, err := putText(t, b, "a", "x", blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(dir, ".rollout-tmp", ".rollout-LEFTOVER")
	writeFile(t, leftover, "half")
	if page, err := b.List(t.Context(), "", "", 10); err != nil || len(page) != 1 || page[0].Key != "a" {
		t.Errorf("List = %+v, %v", page, err)
	}
	for _, c := range []struct {
		ahead time.Duration
		kept  bool
	}{{59 * time.Minute, true}, {61 * time.Minute, false}} {
		later, err := bucket.Open(dir, bucket.Options{Clock: clock.Skewed{Offset: c.ahead}})
		if err != nil {
			t.Fatal(err)
		}
		if err := later.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(leftover); (err == nil) != c.kept {
			t.Errorf("opened %s later: %v, want it kept: %v", c.ahead, err, c.kept)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "secret"), "outside")
	b := openBucket(t, t.TempDir())
	if _, err := putText(t, b, "inside", "inside", blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"folder": outside, "file": filepath.Join(outside, "secret"),
		"self": "inside", "dangling": "nowhere", "loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(b.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"folder/secret", "folder/new", "file", "self", "dangling", "loop", "loop/x"} {
		_, _, err := b.Get(t.Context(), key, blob.GetOptions{})
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "link") {
			t.Errorf("Get(%q) = %v, want Denied", key, err)
		}
		if _, err := b.Stat(t.Context(), key, ""); !fault.Is(err, fault.Denied) {
			t.Errorf("Stat(%q) = %v, want Denied", key, err)
		}
		if err := b.Delete(t.Context(), key, ""); !fault.Is(err, fault.Denied) {
			t.Errorf("Delete(%q) = %v, want Denied", key, err)
		}
		if _, err := b.Copy(t.Context(), "copy", key); !fault.Is(err, fault.Denied) {
			t.Errorf("Copy(%q) = %v, want Denied", key, err)
		}
		for _, o := range []blob.PutOptions{{}, {CreateOnly: true}, {IfVersion: "1-1-1"}} {
			if _, err := putText(t, b, key, "x", o); !fault.Is(err, fault.Denied) && !fault.Is(err, fault.Invalid) {
				t.Errorf("Put(%q, %+v) = %v, want a refusal", key, o, err)
			}
		}
	}
	page, err := b.List(t.Context(), "", "", 10)
	if err != nil || len(page) != 1 || page[0].Key != "inside" {
		t.Errorf("List = %+v, %v", page, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
		t.Errorf("outside the bucket: %v, %v", left, err)
	}
}

func TestPipesAndFoldersAreNotObjects(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	if err := unix.Mkfifo(filepath.Join(b.Dir(), "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.Dir(), "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"pipe", "folder"} {
		if _, _, err := b.Get(t.Context(), key, blob.GetOptions{}); !fault.Is(err, fault.NotFound) {
			t.Errorf("Get(%q) = %v, want NotFound", key, err)
		}
	}
	if page, err := b.List(t.Context(), "", "", 10); err != nil || len(page) != 0 {
		t.Errorf("List = %+v, %v", page, err)
	}
}

func TestUsersWriteIsNewVersion(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	path := filepath.Join(b.Dir(), "x")
	writeFile(t, path, "one")
	one, err := b.Stat(t.Context(), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	later := one.ModTime.Add(time.Millisecond)
	writeFile(t, path, "two")
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Get(t.Context(), "x", blob.GetOptions{Version: one.Version}); !fault.Is(err, fault.NotFound) {
		t.Errorf("Get of the old version = %v, want NotFound", err)
	}
}

func TestConditionalPutsOfTwoBucketsLoseNoUpdates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	buckets := []*bucket.Bucket{openBucket(t, dir), openBucket(t, dir)}
	const rounds = 20
	if _, err := putText(t, buckets[0], "counter", "", blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, b := range buckets { // each appends a byte, with compare and swap
		all.Go(func() {
			for done := 0; done < rounds; {
				r, info, err := b.Get(t.Context(), "counter", blob.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				longer := io.MultiReader(r, strings.NewReader("x"))
				_, err = b.Put(t.Context(), "counter", longer, blob.PutOptions{IfVersion: info.Version})
				if closeErr := r.Close(); closeErr != nil {
					t.Error(closeErr)
				}
				if err == nil {
					done++
				} else if !fault.Is(err, fault.Conflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if info, err := buckets[0].Stat(t.Context(), "counter", ""); err != nil || info.Size != rounds*int64(len(buckets)) {
		t.Errorf("after %d appends: %+v, %v", rounds*len(buckets), info, err)
	}
}

func TestDeleteRemovesEmptyFoldersExceptTopOnes(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	for _, key := range []string{"work/run/0/a", "work/run/1/a"} {
		if _, err := putText(t, b, key, "x", blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(b.Dir(), "work"))
	if err != nil || len(left) != 0 {
		t.Errorf("work/ holds %v, %v, want it empty and there", left, err)
	}
}

// A copy that is being made is no leftover of a crash, though the file is old.
func TestOldFilesAreCopiedIntoOneFolderAtOnce(t *testing.T) {
	t.Parallel()
	dir, files := t.TempDir(), t.TempDir()
	openBucket(t, dir)
	old := time.Now().Add(-24 * time.Hour)
	var all sync.WaitGroup
	for n := range 40 {
		source := filepath.Join(files, fmt.Sprint(n))
		writeFile(t, source, strings.Repeat("x", 100_000))
		if err := os.Chtimes(source, old, old); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			_, err := bucket.PutFile(t.Context(), dir, source, fmt.Sprintf("prompts/%d.jsonl", n), blob.PutOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestPutFileCreatesNewVersionEachTime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new bucket")
	source := filepath.Join(t.TempDir(), "mine.jsonl")
	writeFile(t, source, "one")
	seen := map[string]bool{}
	for range 5 {
		info, err := bucket.PutFile(t.Context(), dir, source, "prompts/team/mine.jsonl", blob.PutOptions{})
		if err != nil || info.Key != "prompts/team/mine.jsonl" || info.Size != 3 || seen[info.Version] {
			t.Fatalf("PutFile = %+v, %v; versions so far: %v", info, err, seen)
		}
		seen[info.Version] = true
		b := openBucket(t, dir)
		r, _, err := b.Get(t.Context(), info.Key, blob.GetOptions{Version: info.Version})
		if err != nil {
			t.Fatal(err)
		}
		if content, err := io.ReadAll(r); err != nil || string(content) != "one" {
			t.Errorf("content %q, %v", content, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(source); err != nil {
		t.Errorf("the user's file: %v", err)
	}
	for name, c := range map[string]struct {
		source, key string
		want        fault.Kind
	}{
		"missing source":         {source + "x", "prompts/x", fault.NotFound},
		"folder":                 {filepath.Dir(source), "prompts/x", fault.Invalid},
		"pipe":                   {mkfifo(t), "prompts/x", fault.Invalid},
		"key outside the bucket": {source, "../x", fault.Invalid},
	} {
		if _, err := bucket.PutFile(t.Context(), dir, c.source, c.key, blob.PutOptions{}); !fault.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func mkfifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenNamesInvalidFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "x")
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := bucket.Open(dir, bucket.Options{})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), dir) {
			t.Errorf("Open(%q) = %v, want Invalid with the name", dir, err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	bucket, err := bucket.Open(b.TempDir(), bucket.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer bucket.Close()
	content := bytes.Repeat([]byte("0123456789abcdef"), 300<<10/16)
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	before := cpuTime(b)
	for i := 0; b.Loop(); i++ {
		key := fmt.Sprintf("work/run/shards/%d/%d-1", i/1000, i)
		_, err := bucket.Put(b.Context(), key, bytes.NewReader(content), blob.PutOptions{CreateOnly: true})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// cpuTime returns the CPU time of this process, in user and kernel mode.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
