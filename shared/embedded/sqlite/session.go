package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"

	"modernc.org/sqlite"
)

// session is one connection to the state file with its prepared statements. One
// goroutine at a time may use it. It uses the interfaces of the driver instead of
// database/sql, whose pool, conversions and locks cost a third of the time of a small
// statement.
type session struct {
	conn  driver.Conn
	path  string
	stmts map[string]driver.Stmt
	args  []driver.NamedValue // reused by every call
}

// immutable is the mode for reading a file that no process has open. SQLite then
// neither creates nor reads a write-ahead log.
const immutable = "immutable"

// openSession connects to the file and applies the pragmas in order. mode is one of
// SQLite's ("ro", "rw", "rwc") or immutable.
func openSession(ctx context.Context, path, mode string, pragmas ...string) (*session, error) {
	query := url.Values{"mode": {mode}, "_pragma": pragmas}
	if mode == immutable {
		query.Set("mode", "ro")
		query.Set("immutable", "1")
	}
	// Without OmitHost a relative path would be taken for a host.
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: filepath.Clean(path), RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(dsn.String())
	if err != nil {
		return nil, stateFault(err, "configure the database", path)
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, stateFault(err, "open the database", path)
	}
	return &session{conn: conn, path: path, stmts: map[string]driver.Stmt{}}, nil
}

// exec runs a statement and returns the number of rows it changed.
func (s *session) exec(ctx context.Context, query string, args ...driver.Value) (int64, error) {
	stmt, err := s.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := stmt.(driver.StmtExecContext).ExecContext(ctx, s.bind(args))
	if err != nil {
		return 0, stateFault(err, verb(query), s.path)
	}
	n, err := result.RowsAffected()
	return n, stateFault(err, verb(query), s.path)
}

// errLastRow is returned by a callback of query to end the query without an error.
var errLastRow = errors.New("last row wanted")

// query calls each for every row. each may keep the values of the row, but not the
// slice.
func (s *session) query(
	ctx context.Context, query string, each func(row []driver.Value) error, args ...driver.Value,
) (err error) {
	stmt, err := s.prepare(ctx, query)
	if err != nil {
		return err
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(ctx, s.bind(args))
	if err != nil {
		return stateFault(err, verb(query), s.path)
	}
	defer func() { err = errors.Join(err, stateFault(rows.Close(), verb(query), s.path)) }()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case err == io.EOF:
			return nil
		case err != nil:
			return stateFault(err, verb(query), s.path)
		}
		switch err := each(row); {
		case err == errLastRow:
			return nil
		case err != nil:
			return err
		}
	}
}

// number returns the integer in the first column of the first row. ok is false if the
// query has no row or the column is NULL.
func (s *session) number(ctx context.Context, query string, args ...driver.Value) (n int64, ok bool, err error) {
	err = s.query(ctx, query, func(row []driver.Value) error {
		n, ok = row[0].(int64)
		return errLastRow
	}, args...)
	return n, ok, err
}

func (s *session) close() error {
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	errs = append(errs, s.conn.Close())
	return stateFault(errors.Join(errs...), "close the database", s.path)
}

// prepare returns the prepared statement, from the cache if possible.
func (s *session) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if stmt, ok := s.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := s.conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, stateFault(err, verb(query), s.path)
	}
	s.stmts[query] = stmt
	return stmt, nil
}

// bind converts arguments into a slice that the next call reuses.
func (s *session) bind(args []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, arg := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: arg})
	}
	return s.args
}

// verb returns the first word of a statement, for error texts.
func verb(query string) string {
	var word string
	if _, err := fmt.Sscan(query, &word); err != nil {
		return "statement"
	}
	return word
}
