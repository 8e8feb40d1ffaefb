package bucket_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollout/shared/blob"
	"rollout/shared/embedded/bucket"
)

// never is a duration that is longer than any test.
const never = time.Hour

// watch watches prompts/ in a new bucket. It returns the bucket, the folder and the
// announcements.
func watch(t *testing.T, o bucket.WatchOptions) (*bucket.Bucket, string, <-chan blob.Upload) {
	t.Helper()
	b := openBucket(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	announced := b.Watch(ctx, "prompts/", o)
	t.Cleanup(func() {
		cancel()
		for range announced { // until it closes
		}
	})
	prompts := filepath.Join(b.Dir(), "prompts")
	return b, prompts, announced
}

// oldFile writes a file with an old modification time outside the bucket and moves it to
// path, as mv would.
func oldFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "source")
	writeFile(t, source, content)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(source, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(source, path); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantNext receives the next announcement and compares it with the file.
func wantNext(t *testing.T, b *bucket.Bucket, announced <-chan blob.Upload, key string, size int) blob.Upload {
	t.Helper()
	info, ok := <-announced
	if !ok {
		t.Fatalf("the channel closed; want %s", key)
	}
	if info.Key != key || info.Size != int64(size) {
		t.Fatalf("announced %+v, want %s of %d bytes", info, key, size)
	}
	if now, err := b.Stat(t.Context(), key, info.Version); err != nil {
		t.Errorf("the announced version cannot be read: %+v, %v", now, err)
	}
	return info
}

// wantNothingBefore creates a marker and checks that it is the next announcement.
func wantNothingBefore(t *testing.T, b *bucket.Bucket, prompts string, announced <-chan blob.Upload) {
	t.Helper()
	oldFile(t, filepath.Join(prompts, "marker"), "marker")
	wantNext(t, b, announced, "prompts/marker", len("marker"))
}

func TestC32UnusualNamesAreAnnouncedUnchanged(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"notified", "found by reading the folder"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := openBucket(t, t.TempDir())
			prompts := filepath.Join(b.Dir(), "prompts")
			want := map[string]bool{}
			for _, name := range []string{"my prompts.jsonl", "a+b.jsonl", "a%2Bb.jsonl", "日本 語.jsonl", "a&b=c?.jsonl"} {
				want["prompts/"+name] = true
			}
			create := func() {
				for key := range want {
					oldFile(t, filepath.Join(b.Dir(), key), key)
				}
			}
			if how != "notified" {
				create()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			announced := b.Watch(ctx, "prompts/", bucket.WatchOptions{Rescan: never})
			if how == "notified" {
				oldFile(t, filepath.Join(prompts, "first"), "first")
				wantNext(t, b, announced, "prompts/first", 5)
				create()
			}
			for n := len(want); n > 0; n-- {
				info := <-announced
				if !want[info.Key] {
					t.Errorf("announced %q, twice or wrongly", info.Key)
				}
				delete(want, info.Key)
				if _, err := b.Stat(t.Context(), info.Key, info.Version); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestC34EmptyFileThatIsFilledSoonIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	o := bucket.WatchOptions{Quiet: 20 * time.Millisecond, EmptyRecheck: never, Rescan: 5 * time.Millisecond}
	b, prompts, announced := watch(t, o)
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	path := filepath.Join(prompts, "x.jsonl")
	writeFile(t, path, "")
	wantNothingBefore(t, b, prompts, announced) // the empty file waits
	writeFile(t, path, "{}\n")
	wantNext(t, b, announced, "prompts/x.jsonl", 3)
	oldFile(t, filepath.Join(prompts, "last"), "last")
	wantNext(t, b, announced, "prompts/last", 4) // not x.jsonl again
}

func TestC34FileThatStaysEmptyIsAnnounced(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: time.Millisecond, EmptyRecheck: 30 * time.Millisecond})
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	writeFile(t, filepath.Join(prompts, "empty.jsonl"), "")
	wantNext(t, b, announced, "prompts/empty.jsonl", 0)
}

func TestWrittenFileIsAnnouncedAfterQuietTime(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: 30 * time.Millisecond, Rescan: never})
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	path := filepath.Join(prompts, "raw.jsonl")
	writeFile(t, path, "{}\n")
	written := time.Now()
	info := wantNext(t, b, announced, "prompts/raw.jsonl", 3)
	if rest := time.Since(info.ModTime); rest < 30*time.Millisecond {
		t.Errorf("announced %s after the last write, too early (written %s)", rest, written)
	}
}

func TestRenamedFileIsAnnouncedAtOnce(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: never, Rescan: never})
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	versions := map[string]bool{}
	partial := []string{".mine", "mine.jsonl.part", "mine.tmp"}
	for _, name := range partial { // each file replaces the one before
		hidden := filepath.Join(prompts, name)
		writeFile(t, hidden, "still fresh")
		oldFile(t, filepath.Join(prompts, "marker"), "x")
		wantNext(t, b, announced, "prompts/marker", 1) // so the watcher has seen the hidden name
		if err := os.Rename(hidden, filepath.Join(prompts, "mine.jsonl")); err != nil {
			t.Fatal(err)
		}
		versions[wantNext(t, b, announced, "prompts/mine.jsonl", 11).Version] = true
	}
	if len(versions) != len(partial) {
		t.Errorf("%d files have the versions %v", len(partial), versions)
	}
}

func TestVersionThatPutFileReturnsIsAnnounced(t *testing.T) {
	t.Parallel()
	b, _, announced := watch(t, bucket.WatchOptions{Quiet: time.Millisecond, Rescan: 5 * time.Millisecond})
	source := filepath.Join(t.TempDir(), "mine.jsonl")
	writeFile(t, source, "mine")
	versions := map[string]bool{}
	for range 2 {
		put, err := bucket.PutFile(t.Context(), b.Dir(), source, "prompts/mine.jsonl", blob.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := wantNext(t, b, announced, "prompts/mine.jsonl", 4); got.Version != put.Version {
			t.Errorf("announced version %s, PutFile returned %s", got.Version, put.Version)
		}
		versions[put.Version] = true
	}
	if len(versions) != 2 {
		t.Errorf("two submissions have the versions %v", versions)
	}
}

func TestReplacedFileIsNewVersion(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: never, Rescan: 5 * time.Millisecond})
	path := filepath.Join(prompts, "x.jsonl")
	oldFile(t, path, "one")
	one := wantNext(t, b, announced, "prompts/x.jsonl", 3)
	oldFile(t, path, "two")
	two := wantNext(t, b, announced, "prompts/x.jsonl", 3)
	if one.Version == two.Version {
		t.Errorf("both have version %s", one.Version)
	}
	wantNothingBefore(t, b, prompts, announced)
}

// A program that opens the file for each line it appends would make a run of each.
func TestAppendedFileWaitsUntilItStopsGrowing(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: time.Millisecond, Rescan: never})
	path := filepath.Join(prompts, "x")
	oldFile(t, path, "first\n")
	wantNext(t, b, announced, "prompts/x", len("first\n"))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("second\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantNothingBefore(t, b, prompts, announced)
	writeFile(t, path, "another file\n") // in place: not an append
	wantNext(t, b, announced, "prompts/x", len("another file\n"))
}

func TestFileRemovedBeforeItsTurnIsNotAnnounced(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: never, Rescan: 5 * time.Millisecond})
	oldFile(t, filepath.Join(prompts, "a-head-that-waits"), "x")
	oldFile(t, filepath.Join(prompts, "gone"), "x")
	if err := os.Remove(filepath.Join(prompts, "gone")); err != nil {
		t.Fatal(err)
	}
	wantNext(t, b, announced, "prompts/a-head-that-waits", 1)
	wantNothingBefore(t, b, prompts, announced)
}

func TestNewFoldersAreWatched(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: never, Rescan: never})
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	oldFile(t, filepath.Join(prompts, "team/a/x.jsonl"), "{}")
	wantNext(t, b, announced, "prompts/team/a/x.jsonl", 2)
	oldFile(t, filepath.Join(prompts, "team/a/y.jsonl"), "{}")
	wantNext(t, b, announced, "prompts/team/a/y.jsonl", 2)
}

func TestRescanFindsFilesWithoutNotification(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: never, Rescan: 5 * time.Millisecond})
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	// The folder is removed and created again, so its notifications are lost.
	if err := os.RemoveAll(prompts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		oldFile(t, filepath.Join(prompts, name), "x")
		wantNext(t, b, announced, "prompts/"+name, 1)
	}
}

func TestHiddenAndPartialFilesFoldersAndLinksAreNotAnnounced(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, bucket.WatchOptions{Quiet: never, Rescan: 5 * time.Millisecond})
	outside := filepath.Join(t.TempDir(), "outside")
	writeFile(t, outside, "secret")
	oldFile(t, filepath.Join(prompts, ".hidden"), "x")
	oldFile(t, filepath.Join(prompts, ".folder/x"), "x")
	oldFile(t, filepath.Join(prompts, "x.jsonl.part"), "x")
	oldFile(t, filepath.Join(prompts, "x.tmp"), "x")
	oldFile(t, filepath.Join(prompts, "bad\x01name"), "x")
	oldFile(t, filepath.Join(prompts, "bad\xffname"), "x")
	if err := os.MkdirAll(filepath.Join(prompts, "empty folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(prompts, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(prompts, "linked folder")); err != nil {
		t.Fatal(err)
	}
	oldFile(t, filepath.Join(b.Dir(), "work/x"), "x")
	wantNothingBefore(t, b, prompts, announced)
}

func TestEachWatchAnnouncesExistingFiles(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	oldFile(t, filepath.Join(b.Dir(), "prompts/a"), "x")
	oldFile(t, filepath.Join(b.Dir(), "prompts/b-c"), "x")
	oldFile(t, filepath.Join(b.Dir(), "prompts/b/c"), "x")
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		announced := b.Watch(ctx, "prompts/", bucket.WatchOptions{Rescan: never})
		for _, key := range []string{"prompts/a", "prompts/b-c", "prompts/b/c"} {
			wantNext(t, b, announced, key, 1)
		}
		cancel()
		if info, open := <-announced; open {
			t.Errorf("announced %+v after the end", info)
		}
	}
}

func TestWatchOfInvalidPrefixClosesChannel(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	if info, open := <-b.Watch(t.Context(), "../", bucket.WatchOptions{}); open {
		t.Errorf("announced %+v", info)
	}
}

// An announcement tells objects that may be those of before from uploads.
func TestAnnouncementsSayWhatMayBeAnEarlierObject(t *testing.T) {
	t.Parallel()
	b := openBucket(t, t.TempDir())
	prompts := filepath.Join(b.Dir(), "prompts")
	x, y := filepath.Join(prompts, "x.jsonl"), filepath.Join(prompts, "y.jsonl")
	oldFile(t, x, "x")
	oldFile(t, y, "y")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	announced := b.Watch(ctx, "prompts/", bucket.WatchOptions{Quiet: time.Millisecond, Rescan: 5 * time.Millisecond})
	want := func(key string, how blob.Found) blob.Upload {
		t.Helper()
		u := wantNext(t, b, announced, "prompts/"+key, 1)
		if u.Found != how {
			t.Errorf("%s is announced as %q, want %q", key, u.Found, how)
		}
		return u
	}
	want("x.jsonl", blob.Kept)
	first := want("y.jsonl", blob.Kept)

	oldFile(t, x, "2") // over it
	want("x.jsonl", blob.Written)
	oldFile(t, filepath.Join(prompts, "z.jsonl"), "z")
	want("z.jsonl", blob.Written)

	if err := os.Remove(x); err != nil {
		t.Fatal(err)
	}
	wantNothingBefore(t, b, prompts, announced) // so the watcher has seen that it is gone
	oldFile(t, x, "3")
	want("x.jsonl", blob.Returned)
	oldFile(t, x, "4")
	want("x.jsonl", blob.Written)

	copied := filepath.Join(t.TempDir(), "y.jsonl") // with its modification time
	writeFile(t, copied, "y")
	if err := os.Chtimes(copied, first.ModTime, first.ModTime); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied, y); err != nil {
		t.Fatal(err)
	}
	if again := want("y.jsonl", blob.Written); !bucket.Moved(first.Version, again.Version) {
		t.Errorf("version %s became %s", first.Version, again.Version)
	}
}
