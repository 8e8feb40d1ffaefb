package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"strconv"

	"rollout/shared/document"
	"rollout/shared/fault"
)

// pageBytes limits the bytes of values in one result of a list: a query ends after
// the row that reaches it.
const pageBytes = 4 << 20

const (
	getDocument     = `SELECT value, revision FROM document WHERE key = ?`
	hasDocument     = `SELECT 1 FROM document WHERE key = ?`
	createDocument  = `INSERT INTO document (key, value, revision) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	replaceDocument = `UPDATE document SET value = ?, revision = ? WHERE key = ? AND revision = ?`
	deleteDocument  = `DELETE FROM document WHERE key = ? AND revision = ?`
	listFrom        = `SELECT key, value, revision FROM document WHERE key >= ? AND key < ? ORDER BY key LIMIT ?`
	listAfter       = `SELECT key, value, revision FROM document WHERE key > ? AND key < ? ORDER BY key LIMIT ?`
)

// documents implements document.Store and document.Watcher.
type documents struct{ state *State }

func (d documents) Get(ctx context.Context, key string) (doc document.Doc, err error) {
	if err := document.CheckKey(key); err != nil {
		return doc, err
	}
	err = d.state.read(ctx, func(ctx context.Context, s *session) error {
		doc, err = get(ctx, s, key)
		return err
	})
	if err == nil && doc.Revision == "" {
		return document.Doc{}, fault.New(fault.NotFound, "document %s does not exist", key)
	}
	return doc, fault.Wrap(err, "get document %s", key)
}

func (d documents) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	if err := document.CheckKeys(keys); err != nil {
		return nil, err
	}
	docs := make([]document.Doc, len(keys))
	err := d.state.readSnapshot(ctx, func(ctx context.Context, s *session) (err error) {
		for i, key := range keys {
			if docs[i], err = get(ctx, s, key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fault.Wrap(err, "get %d documents", len(keys))
	}
	return docs, nil
}

func (d documents) Create(ctx context.Context, key string, value []byte) (rev document.Revision, err error) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	value = cloneValue(value)
	var number int64
	err = d.state.write(ctx, len(value), func(ctx context.Context, g *transaction) error {
		number = g.writes + 1
		n, err := g.exec(ctx, createDocument, key, value, number)
		if err == nil && n == 0 {
			return fault.New(fault.Conflict, "document %s exists already", key)
		}
		g.wrote(key)
		return err
	})
	if err != nil {
		return "", fault.Wrap(err, "create document %s", key)
	}
	return revision(number), nil
}

func (d documents) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error,
) {
	if err := document.CheckWrite(key, value); err != nil {
		return "", err
	}
	old, ok := numberOf(rev)
	if !ok {
		return "", fault.New(fault.Conflict, "document %s is not at revision %q", key, rev)
	}
	value = cloneValue(value)
	var number int64
	err := d.state.write(ctx, len(value), func(ctx context.Context, g *transaction) error {
		number = g.writes + 1
		n, err := g.exec(ctx, replaceDocument, value, number, key, old)
		if err == nil && n == 0 {
			return fault.New(fault.Conflict, "document %s is not at revision %s", key, rev)
		}
		g.wrote(key)
		return err
	})
	if err != nil {
		return "", fault.Wrap(err, "replace document %s", key)
	}
	return revision(number), nil
}

func (d documents) Delete(ctx context.Context, key string, rev document.Revision) error {
	if err := document.CheckKey(key); err != nil {
		return err
	}
	old, ok := numberOf(rev)
	if !ok {
		old = 0 // matches no document
	}
	err := d.state.write(ctx, 0, func(ctx context.Context, g *transaction) error {
		n, err := g.exec(ctx, deleteDocument, key, old)
		if err != nil {
			return err
		}
		if n > 0 {
			g.wrote(key)
			return nil
		}
		_, exists, err := g.number(ctx, hasDocument, key)
		if err == nil && exists {
			return fault.New(fault.Conflict, "document %s is not at revision %q", key, rev)
		}
		if err == nil {
			return fault.New(fault.NotFound, "document %s does not exist", key)
		}
		return err
	})
	return fault.Wrap(err, "delete document %s", key)
}

func (d documents) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if err := document.CheckList(prefix, after, limit); err != nil {
		return nil, err
	}
	from, to := document.KeyRange(prefix)
	query := listFrom
	if after >= from {
		query, from = listAfter, after
	}
	var docs []document.Doc
	size := 0
	err := d.state.read(ctx, func(ctx context.Context, s *session) error {
		return s.query(ctx, query, func(row []driver.Value) error {
			doc := document.Doc{Key: row[0].(string)}
			fill(&doc, row[1], row[2])
			docs = append(docs, doc)
			if size += len(doc.Value); size >= pageBytes {
				return errLastRow
			}
			return nil
		}, from, to, int64(limit))
	})
	return docs, fault.Wrap(err, "list documents %s*", prefix)
}

func (d documents) Ping(ctx context.Context) error {
	return d.state.read(ctx, func(ctx context.Context, s *session) error {
		_, _, err := s.number(ctx, countWrites)
		return err
	})
}

func (d documents) Watch(ctx context.Context, prefix string) <-chan struct{} {
	return d.state.notifier.watch(ctx, prefix)
}

// get returns the document. Its revision is empty if it does not exist.
func get(ctx context.Context, s *session, key string) (document.Doc, error) {
	doc := document.Doc{Key: key}
	err := s.query(ctx, getDocument, func(row []driver.Value) error {
		fill(&doc, row[0], row[1])
		return errLastRow
	}, key)
	return doc, err
}

// fill sets the value and the revision from the columns of a row.
func fill(doc *document.Doc, value, number driver.Value) {
	doc.Value, _ = value.([]byte)
	if doc.Value == nil {
		doc.Value = []byte{}
	}
	n, _ := number.(int64)
	doc.Revision = revision(n)
}

func revision(number int64) document.Revision {
	return document.Revision(strconv.FormatInt(number, 10))
}

// numberOf returns the number of a revision, false if this driver did not create it.
func numberOf(rev document.Revision) (int64, bool) {
	n, err := strconv.ParseInt(string(rev), 10, 64)
	return n, err == nil && revision(n) == rev
}

// cloneValue copies a value: a caller whose context ends may change its slice while
// the writer still reads it. The copy is never nil, which SQLite would store as NULL.
func cloneValue(value []byte) []byte {
	if len(value) == 0 {
		return []byte{}
	}
	return bytes.Clone(value)
}
