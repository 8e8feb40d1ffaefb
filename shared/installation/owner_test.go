package installation_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/document"
	"rollout/shared/embedded/sqlite"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// up opens an installation as `up` does, and closes it after use.
func up(t *testing.T, dir string, use func(*installation.Local)) error {
	t.Helper()
	l, closeLocal, err := installation.OpenLocal(t.Context(), dir, installation.LocalOptions{Create: true})
	if err != nil {
		return err
	}
	if use != nil {
		use(l)
	}
	return closeLocal()
}

// submits opens an installation as `submit` does, and returns what it says of the bucket.
func submits(t *testing.T, dir string) error {
	t.Helper()
	in, err := installation.Open(t.Context(), installation.Location{Dir: dir},
		installation.Options{AllowUninitialized: true, Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(in.CheckOwner(t.Context()), in.Close())
}

// folders returns the paths of two installations. The first one is made.
func folders(t *testing.T) (first, second string) {
	t.Helper()
	root := t.TempDir()
	first, second = filepath.Join(root, "first"), filepath.Join(root, "second")
	if err := up(t, first, nil); err != nil {
		t.Fatal(err)
	}
	return first, second
}

// link makes the bucket of one installation a link to that of another.
func link(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(from, 0o755), os.RemoveAll(installation.BucketDir(from)),
		os.Symlink(installation.BucketDir(to), installation.BucketDir(from))); err != nil {
		t.Fatal(err)
	}
}

// wantRefused fails unless the error names the owner and what to do.
func wantRefused(t *testing.T, err error, owner, dir string) {
	t.Helper()
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v, want Invalid", err)
		return
	}
	for _, part := range []string{owner, "let " + dir + "/bucket be a folder of its own",
		"remove " + dir + "/bucket/" + record.OwnerKey} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q lacks %q", err, part)
		}
	}
}

func TestBucketOfAnotherFolderIsRefused(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, second string){
		"it is new":              func(*testing.T, string) {},
		"it had one of its own":  func(t *testing.T, second string) { _ = up(t, second, nil) },
		"it is new, and refused": func(t *testing.T, second string) { _ = up(t, second, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := folders(t)
			if name == "it is new, and refused" {
				link(t, second, first)
			}
			before(t, second)
			link(t, second, first)
			wantRefused(t, submits(t, second), first, second)
			wantRefused(t, up(t, second, nil), first, second)
			wantRefused(t, submits(t, second), first, second)
			if err := errors.Join(submits(t, first), up(t, first, nil)); err != nil {
				t.Errorf("the owner: %v", err)
			}
			if err := os.Remove(filepath.Join(installation.BucketDir(second), record.OwnerKey)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(submits(t, second), up(t, second, nil)); err != nil {
				t.Errorf("after the remedy: %v", err)
			}
			wantRefused(t, up(t, first, nil), second, first)
		})
	}
}

// A copy of the whole folder, and a backup that is restored elsewhere, are the same
// installation.
func TestCopiedAndRestoredInstallationsGoOn(t *testing.T) {
	t.Parallel()
	first, second := folders(t)
	backup := filepath.Join(filepath.Dir(first), "backup")
	if err := up(t, first, func(l *installation.Local) {
		if err := l.State.Backup(t.Context(), backup); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	copied := second + "-copy"
	if err := os.CopyFS(copied, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	restored := second + "-restored" // had another state before
	if err := up(t, restored, nil); err != nil {
		t.Fatal(err)
	}
	for dir, bucket := range map[string]bool{second: true, second + "-bare": false, restored: false} {
		if _, err := sqlite.Restore(t.Context(), installation.StateDir(dir), backup, sqlite.Options{}); err != nil {
			t.Fatal(err)
		}
		if bucket {
			if err := os.CopyFS(installation.BucketDir(dir), os.DirFS(installation.BucketDir(first))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, dir := range []string{copied, second, second + "-bare", restored} {
		for range 2 {
			if err := errors.Join(submits(t, dir), up(t, dir, nil)); err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
	if err := os.RemoveAll(installation.StateDir(first)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(submits(t, first), up(t, first, nil)); err != nil {
		t.Errorf("begun anew in its folder: %v", err)
	}
}

// An installation of an earlier version has neither an id nor a mark.
func TestInstallationOfEarlierVersionGoesOn(t *testing.T) {
	t.Parallel()
	old := func(t *testing.T, dir string, runs ...string) { // forgets its id, and has the runs
		t.Helper()
		if err := up(t, dir, func(l *installation.Local) {
			d, err := l.State.Documents().Get(t.Context(), record.InstallationKey)
			if err == nil {
				err = l.State.Documents().Delete(t.Context(), d.Key, d.Revision)
			}
			for _, id := range runs {
				var docs document.Store = l.State.Documents()
				_, createErr := docs.Create(t.Context(), record.ManifestPrefix+id, []byte("{}"))
				err = errors.Join(err, createErr)
			}
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := folders(t)
	old(t, first)
	if err := os.Remove(filepath.Join(installation.BucketDir(first), record.OwnerKey)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(submits(t, first), up(t, first, nil), submits(t, first)); err != nil {
		t.Errorf("the first start of this version: %v", err)
	}

	// Its backup, restored beside a copy of the bucket, which has a mark by now.
	old(t, second, "01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	text, err := os.ReadFile(filepath.Join(installation.BucketDir(first), record.OwnerKey))
	if err == nil {
		err = os.WriteFile(filepath.Join(installation.BucketDir(second), record.OwnerKey), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(submits(t, second), up(t, second, nil), submits(t, second)); err != nil {
		t.Errorf("restored from an earlier version's backup: %v", err)
	}

	// Another one of an earlier version over the bucket of the first.
	third := second + "-other"
	old(t, third, "01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	link(t, third, first)
	wantRefused(t, submits(t, third), first, third)
	wantRefused(t, up(t, third, nil), first, third)
}

// Copies of an installation have one id. Only one of them runs over a bucket.
func TestBucketIsLockedForCopiesOfItsInstallation(t *testing.T) {
	t.Parallel()
	first, second := folders(t)
	if err := os.CopyFS(second, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	link(t, second, first)
	release, err := installation.LockBucket(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := installation.LockBucket(second); !fault.Is(err, fault.Invalid) ||
		!strings.Contains(err.Error(), "already runs an installation over the bucket "+second+"/bucket") {
		t.Errorf("got %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if release, err = installation.LockBucket(second); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
