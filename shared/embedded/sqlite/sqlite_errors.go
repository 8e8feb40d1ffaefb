package sqlite

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rollout/shared/fault"
)

// sqliteKinds maps SQLite's primary result codes to kinds. A code that it lacks is
// Internal.
var sqliteKinds = map[int]fault.Kind{
	sqlite3.SQLITE_PERM:      fault.Denied,
	sqlite3.SQLITE_BUSY:      fault.Unavailable,
	sqlite3.SQLITE_LOCKED:    fault.Unavailable,
	sqlite3.SQLITE_NOMEM:     fault.Exhausted,
	sqlite3.SQLITE_READONLY:  fault.Denied,
	sqlite3.SQLITE_INTERRUPT: fault.Canceled,
	sqlite3.SQLITE_IOERR:     fault.Unavailable,
	sqlite3.SQLITE_CORRUPT:   fault.Corrupt,
	sqlite3.SQLITE_FULL:      fault.Exhausted,
	sqlite3.SQLITE_CANTOPEN:  fault.Unavailable,
	sqlite3.SQLITE_PROTOCOL:  fault.Unavailable,
	sqlite3.SQLITE_TOOBIG:    fault.Invalid,
	sqlite3.SQLITE_AUTH:      fault.Denied,
	sqlite3.SQLITE_NOTADB:    fault.Corrupt,
}

// sqliteExtended maps the extended result codes whose kind differs from that of their
// primary code.
var sqliteExtended = map[int]fault.Kind{
	sqlite3.SQLITE_IOERR_NOMEM:     fault.Exhausted,
	sqlite3.SQLITE_IOERR_CORRUPTFS: fault.Corrupt,
	sqlite3.SQLITE_IOERR_ACCESS:    fault.Denied,
	sqlite3.SQLITE_IOERR_DATA:      fault.Corrupt,
}

// remedies say what a user can do about an error of a state file, by kind.
var remedies = map[fault.Kind]string{
	fault.Exhausted: "free space on that disk, then try again",
	fault.Denied:    "make the folder and its state.db* files writable for this user, or name another state folder",
	fault.Corrupt: "stop everything that runs there and restore the newest backup: `rollout restore --dir DIR FILE`; " +
		"without one, move state.db, state.db-wal and state.db-shm away together and start anew: " +
		"finished runs keep their results in the bucket, all others begin again",
}

// stateFault wraps an error of SQLite with its kind, its remedy, the operation and the
// file. A nil error stays nil, and an error that has a kind keeps it.
func stateFault(err error, op, path string) error {
	var vendor *sqlite.Error
	if !errors.As(err, &vendor) {
		return fault.Wrap(err, "%s in %s", op, path)
	}
	kind, ok := sqliteExtended[vendor.Code()]
	if !ok {
		kind = sqliteKinds[vendor.Code()&0xff] // the zero value is Internal
	}
	return &fault.Error{Kind: kind, Op: op + " in " + path, Remedy: remedies[kind], Err: err}
}
