package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Fields of SQLite's header by which a state file is recognized.
const (
	applicationID = 0x524c4c54 // "RLLT"
	schemaVersion = 1          // the user version
)

// schema creates an empty state file. `counter` has one row: the number of the last
// write, which gives revisions and message ids. The due of a message is the time from
// which it is visible, in nanoseconds since 1970.
var schema = []string{
	`CREATE TABLE counter (writes INTEGER NOT NULL)`,
	`INSERT INTO counter VALUES (0)`,
	`CREATE TABLE document (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE message (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, due INTEGER NOT NULL, ` +
		`receives INTEGER NOT NULL, body BLOB NOT NULL)`,
	`CREATE INDEX message_due ON message (queue, due)`,
	`PRAGMA application_id = ` + strconv.Itoa(applicationID),
	`PRAGMA user_version = ` + strconv.Itoa(schemaVersion),
}

// createFile creates the state file if it does not exist. The file appears complete,
// by a rename: a file without a schema was truncated and is not taken for a new one.
// The caller holds the lock.
func createFile(ctx context.Context, d disk.Disk, path string) (err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		// The process that created or restored the file may have ended before it synced
		// the folder. Opening the file reports what is wrong with it.
		return filesystem.Fault(disk.Sync(d, filepath.Dir(path)), "sync the state folder")
	}
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		return &fault.Error{
			Kind:   fault.Corrupt,
			Op:     path + " is missing, but " + path + "-wal, the log of its last writes, exists",
			Remedy: remedies[fault.Corrupt],
		}
	}
	temp := path + ".new"
	if err := d.Remove(disk.AtWorkingDir, temp, false); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a crash
		return filesystem.Fault(err, "remove %s", temp)
	}
	// The file is synced once, after its creation, or discarded.
	s, err := openSession(ctx, temp, "rwc", "journal_mode(OFF)", "synchronous(OFF)")
	if err != nil {
		return err
	}
	if err := errors.Join(createSchema(ctx, s), s.close()); err != nil {
		return err
	}
	if err := disk.Sync(d, temp); err != nil {
		return filesystem.Fault(err, "sync %s", temp)
	}
	return filesystem.Fault(disk.Rename(d, temp, path, true), "create %s", path)
}

// countWrites reads the counter.
const countWrites = `SELECT writes FROM counter`

// checkSchema fails if the file is not a state file, or newer than this program.
func checkSchema(ctx context.Context, s *session) error {
	app, _, err := s.number(ctx, `PRAGMA application_id`)
	if err != nil {
		return err
	}
	version, _, err := s.number(ctx, `PRAGMA user_version`)
	if err != nil {
		return err
	}
	tables, _, err := s.number(ctx, `SELECT count(*) FROM sqlite_schema`)
	switch {
	case err != nil:
		return err
	case app == 0 && version == 0 && tables == 0:
		return &fault.Error{Kind: fault.Corrupt, Op: s.path + " is empty", Remedy: remedies[fault.Corrupt]}
	case app != applicationID:
		return &fault.Error{Kind: fault.Corrupt, Op: s.path + " is a database of another program",
			Remedy: "name another state folder, or move the file away"}
	case version > schemaVersion:
		return &fault.Error{
			Kind: fault.Invalid,
			Op: s.path + " has version " + strconv.FormatInt(version, 10) +
				" of the state file, this program knows version " + strconv.Itoa(schemaVersion),
			Remedy: "use the newer rollout that wrote it, or name another state folder",
		}
	}
	_, ok, err := s.number(ctx, countWrites)
	if err == nil && !ok {
		err = &fault.Error{Kind: fault.Corrupt, Op: s.path + " has lost its write counter", Remedy: remedies[fault.Corrupt]}
	}
	return err
}

func createSchema(ctx context.Context, s *session) error {
	if _, err := s.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	for _, statement := range schema {
		if _, err := s.exec(ctx, statement); err != nil {
			_, rollbackErr := s.exec(ctx, `ROLLBACK`)
			return errors.Join(err, rollbackErr)
		}
	}
	_, err := s.exec(ctx, `COMMIT`)
	return err
}
