package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// completeCheck is the time limit of the check of a copy: long enough to check it
// to its end.
const completeCheck = 24 * time.Hour

// Backup writes a consistent snapshot of the state to a new file, while other
// processes read and write the state. If Backup returns nil, the file is complete,
// checked and durable; otherwise it does not exist. An existing file is Invalid, a
// damaged state Corrupt.
func (s *State) Backup(ctx context.Context, file string) (err error) {
	if err := s.damage.refusal(); err != nil {
		return err
	}
	if _, err := os.Lstat(file); err == nil { // fails early; place checks again without a race
		return fileExists(file)
	}
	temp := tempName(file)
	if err := createEmpty(temp); err != nil { // gives a better error than SQLite for a bad path
		return err
	}
	defer os.Remove(temp) // after success the file has its final name
	r, err := openSession(ctx, s.path, "ro", busyTimeout)
	if err != nil {
		return err
	}
	_, err = r.exec(ctx, `VACUUM INTO ?`, temp)
	if err := errors.Join(s.damage.note(err), r.close()); err != nil {
		return err
	}
	if err := verify(ctx, temp); err != nil {
		return fault.Wrap(err, "check the backup")
	}
	return place(temp, file)
}

func fileExists(file string) error {
	return &fault.Error{Kind: fault.Invalid, Op: file + " exists already",
		Remedy: "name a new file: backups are never overwritten"}
}

// tempName returns a temporary name in the folder of the file.
func tempName(file string) string { return file + ".part-" + rand.Text()[:8] }

// createEmpty creates an empty file.
func createEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name a file in a folder that exists"}
	}
	if err != nil {
		return filesystem.Fault(err, "create the file")
	}
	return f.Close()
}

// verify checks a copy of a state file to its end.
func verify(ctx context.Context, path string) (err error) {
	s, err := openSession(ctx, path, immutable)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := checkSchema(ctx, s); err != nil {
		return err
	}
	if err := check(ctx, s, completeCheck); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "check %s", path)
	}
	return nil
}

// place syncs a temporary file and renames it to file. It fails with Invalid if file
// exists.
func place(temp, file string) error {
	if err := syncFile(temp); err != nil {
		return err
	}
	err := filesystem.RenameNoReplace(unix.AT_FDCWD, temp, unix.AT_FDCWD, file)
	if errors.Is(err, fs.ErrExist) {
		return fileExists(file)
	}
	if err != nil {
		return filesystem.Fault(err, "rename to %s", file)
	}
	return filesystem.SyncFolder(filepath.Dir(file))
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return filesystem.Fault(err, "sync %s", path)
	}
	return errors.Join(filesystem.Fault(f.Sync(), "sync %s", path), f.Close())
}

// Restore replaces the state in the folder dir by a backup. No process may have the
// state open. Restore keeps the previous state beside it, under the returned name,
// which is "" if there was none. It refuses an incomplete or damaged backup before
// it changes anything.
func Restore(ctx context.Context, dir, backup string, now time.Time) (kept string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", filesystem.Fault(err, "create the state folder %s", dir)
	}
	path := filepath.Join(dir, stateFile)
	temp := tempName(path)
	defer os.Remove(temp) // after success the file has its final name
	if err := copyFile(backup, temp); err != nil {
		return "", err
	}
	if err := verify(ctx, temp); err != nil {
		return "", fault.Wrap(err, "%s is not a backup of a state", backup)
	}
	lock, err := openFileLock(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.close()) }()
	if err := lock.lock(ctx, lockTimeout); err != nil {
		return "", err
	}
	if kept, err = setAside(path, now); err != nil {
		return kept, err
	}
	return kept, place(temp, path)
}

// setAside renames a state file with its write-ahead log and its index. The log is
// renamed first: SQLite would apply a log that stays behind to the next state file.
func setAside(path string, now time.Time) (kept string, err error) {
	aside, err := unusedName(path + ".before-" + now.UTC().Format("20060102-150405"))
	if err != nil {
		return "", err
	}
	for _, end := range []string{"-wal", "-shm", ""} {
		err := os.Rename(path+end, aside+end)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return kept, filesystem.Fault(err, "set %s aside", path+end)
		}
		kept = aside
	}
	return kept, nil
}

// unusedName returns name, or the first of name-2, name-3 and so on that does not
// exist, so that the states of earlier restores are kept.
func unusedName(name string) (string, error) {
	for n, try := 2, name; ; n, try = n+1, fmt.Sprintf("%s-%d", name, n) {
		_, err := os.Lstat(try)
		if errors.Is(err, fs.ErrNotExist) {
			return try, nil
		}
		if err != nil {
			return "", filesystem.Fault(err, "stat %s", try)
		}
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return filesystem.Fault(err, "open %s", from)
	}
	defer src.Close() // opened for reading; closing cannot lose data
	if info, err := src.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fault.New(fault.Invalid, "%s is not a regular file", from), err)
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return filesystem.Fault(err, "copy %s", from)
	}
	_, err = io.Copy(dst, src)
	return errors.Join(filesystem.Fault(err, "copy %s to %s", from, to), dst.Close())
}
