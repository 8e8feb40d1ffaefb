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

// completeCheck is how long a copy of a state file may be looked through:
// copies are checked to their end.
const completeCheck = 24 * time.Hour

// Backup writes the state, as it is at one moment, into a new file: while
// others read and write it. The file is whole, checked and on disk, or not
// there. A file that exists is Invalid, a state that is broken Corrupt.
func (s *State) Backup(ctx context.Context, file string) (err error) {
	if err := s.damage.refusal(); err != nil {
		return err
	}
	if _, err := os.Lstat(file); err == nil { // saves the copying; the last word has place
		return taken(file)
	}
	temp := beside(file)
	if err := makeEmpty(temp); err != nil { // the operating system says best why it can't be
		return err
	}
	defer os.Remove(temp) // it has another name by then, or is good for nothing
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

func taken(file string) error {
	return &fault.Error{Kind: fault.Invalid, Op: file + " is there already", Remedy: "name a file that is not there: backups are never overwritten"}
}

// beside is a name for a file on its way to its own.
func beside(file string) string { return file + ".part-" + rand.Text()[:8] }

// makeEmpty makes an empty file, for others to fill.
func makeEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name a file in a folder that is there"}
	}
	if err != nil {
		return filesystem.Fault(err, "make the file")
	}
	return f.Close()
}

// verify checks a copy of a state file to its end.
func verify(ctx context.Context, path string) (err error) {
	s, err := openSession(ctx, path, alone)
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

// place syncs a file and gives it its name, unless that is taken.
func place(temp, file string) error {
	if err := syncFile(temp); err != nil {
		return err
	}
	err := filesystem.RenameNoReplace(unix.AT_FDCWD, temp, unix.AT_FDCWD, file)
	if errors.Is(err, fs.ErrExist) {
		return taken(file)
	}
	if err != nil {
		return filesystem.Fault(err, "name %s", file)
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

// Restore makes a backup the state in the folder dir, which nobody may
// have open. What was there is kept beside it, under the returned name; "" if
// nothing was. A file that is no whole backup is refused before anything is
// touched.
func Restore(ctx context.Context, dir, backup string, now time.Time) (kept string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", filesystem.Fault(err, "make the state folder %s", dir)
	}
	path := filepath.Join(dir, stateFile)
	temp := beside(path)
	defer os.Remove(temp) // it has another name by then, or is good for nothing
	if err := copyFile(backup, temp); err != nil {
		return "", err
	}
	if err := verify(ctx, temp); err != nil {
		return "", fault.Wrap(err, "%s is no backup of a state", backup)
	}
	lock, err := openFileLock(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.close()) }()
	if err := lock.lock(ctx, patience); err != nil {
		return "", err
	}
	if kept, err = setAside(path, now); err != nil {
		return kept, err
	}
	return kept, place(temp, path)
}

// setAside renames a state file and its companions. The log of its writes goes
// first: left behind, it would be taken for that of the file that comes next.
func setAside(path string, now time.Time) (kept string, err error) {
	aside, err := free(path + ".before-" + now.UTC().Format("20060102-150405"))
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

// free returns the name, or the first of name-2, name-3 and so on under which
// no state is kept: what an earlier restore set aside stays.
func free(name string) (string, error) {
	for n, try := 2, name; ; n, try = n+1, fmt.Sprintf("%s-%d", name, n) {
		_, err := os.Lstat(try)
		if errors.Is(err, fs.ErrNotExist) {
			return try, nil
		}
		if err != nil {
			return "", filesystem.Fault(err, "look at %s", try)
		}
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return filesystem.Fault(err, "open %s", from)
	}
	defer src.Close() // read only: nothing can be lost
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
