package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Names of files beside the state file. The stamp of a restore is its time and, if
// there were several in one second, a number.
const (
	restoreInfix = ".restore-" // STAMP: a verified copy of a backup, which becomes the state
	keptInfix    = ".before-"  // STAMP: the state before that restore
)

// Restore replaces the state in the folder dir by a backup. No process may have the
// state open. Restore keeps the previous state beside it, under the returned name,
// which is "" if there was none. It refuses an incomplete or damaged backup before
// it changes anything.
//
//	copy and verify the backup ─▶ state.db.restore-STAMP ─▶ rename the old files ─▶ rename to state.db
//
// The copy's name is the decision: a restore that is interrupted before it has no
// effect, and one that is interrupted after it is finished by the next Open.
func Restore(ctx context.Context, dir, backup string, o Options) (kept string, err error) {
	o = o.withDefaults()
	if err := disk.MakeFolder(o.Disk, dir); err != nil {
		return "", filesystem.Fault(err, "create the state folder %s", dir)
	}
	lock, err := openFileLock(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.close()) }()
	if err := lock.lock(ctx, lockTimeout); err != nil {
		return "", err
	}
	path := filepath.Join(dir, stateFile)
	if _, err := finishRestore(o.Disk, path, o.Logger); err != nil {
		return "", err
	}
	stamp, err := unusedStamp(path, o.Clock.Now().UTC().Format("20060102-150405"))
	if err != nil {
		return "", err
	}
	if err := decideRestore(ctx, o.Disk, backup, path+restoreInfix+stamp); err != nil {
		return "", err
	}
	return finishRestore(o.Disk, path, o.Logger)
}

// decideRestore copies a backup to the file next and verifies it.
func decideRestore(ctx context.Context, d disk.Disk, backup, next string) error {
	f, err := createCopy(d, next)
	if err != nil {
		return err
	}
	if err := copyFile(backup, f); err != nil {
		return f.Discard(err)
	}
	if err := verify(ctx, f.Name()); err != nil {
		return f.Discard(fault.Wrap(err, "%s is not a backup of a state", backup))
	}
	return filesystem.Fault(f.CommitNew(), "copy the backup %s", backup)
}

// finishRestore finishes the restore that was decided, if there is one. It returns the
// name under which the previous state is kept, "" if there was none. The caller holds
// the lock.
func finishRestore(d disk.Disk, path string, log *slog.Logger) (kept string, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return "", filesystem.Fault(err, "read the state folder")
	}
	for _, e := range entries {
		stamp, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+restoreInfix)
		if !ok {
			continue
		}
		aside := path + keptInfix + stamp
		if err := setAside(d, path, aside); err != nil {
			return "", err
		}
		if err := disk.Rename(d, path+restoreInfix+stamp, path, false); err != nil {
			return "", filesystem.Fault(err, "restore %s", path)
		}
		used, err := isUsed(aside)
		if err != nil {
			return "", err
		}
		if used {
			kept = aside
		}
		log.Info("restored the state from a backup", "kept", kept)
	}
	return kept, nil
}

// filesOf returns the files of the state with the name: its log, its index and itself.
func filesOf(name string) []string { return []string{name + "-wal", name + "-shm", name} }

// setAside renames a state file with its write-ahead log and its index, as far as they
// still have their names. SQLite would apply a log that stays behind to the next state
// file, so the new names are durable when setAside returns.
func setAside(d disk.Disk, path, aside string) error {
	to := filesOf(aside)
	for i, from := range filesOf(path) {
		err := d.Rename(disk.AtWorkingDir, from, disk.AtWorkingDir, to[i], true)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return filesystem.Fault(err, "set %s aside", from)
		}
	}
	return filesystem.Fault(disk.Sync(d, filepath.Dir(path)), "set %s aside", path)
}

// unusedStamp returns stamp, or the first of stamp-2, stamp-3 and so on of which no
// state is kept, so that the states of earlier restores stay.
func unusedStamp(path, stamp string) (string, error) {
	for n, try := 2, stamp; ; n, try = n+1, fmt.Sprintf("%s-%d", stamp, n) {
		if used, err := isUsed(path + keptInfix + try); err != nil || !used {
			return try, err
		}
	}
}

// isUsed reports whether one of the files of a state exists under the name.
func isUsed(name string) (bool, error) {
	for _, file := range filesOf(name) {
		_, err := os.Lstat(file)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err == nil, filesystem.Fault(err, "look for a kept state")
		}
	}
	return false, nil
}

func copyFile(from string, to io.Writer) error {
	src, err := os.Open(from)
	if err != nil {
		return filesystem.Fault(err, "open %s", from)
	}
	defer src.Close() // opened for reading; closing cannot lose data
	if info, err := src.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fault.New(fault.Invalid, "%s is not a regular file", from), err)
	}
	_, err = io.Copy(to, src)
	return filesystem.Fault(err, "copy %s", from)
}
