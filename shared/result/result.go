// Package result is the bytes of a shard's rows: the result object of a
// finished shard, and the checkpoint of an unfinished one.
//
// A result is the output rows, then the error rows, each in item order, and
// nothing else, so that stores can join results without looking into them; but
// where runs ask identical requests once, it has an index. A checkpoint keeps which row is whose. Rows are opaque here; they end in one
// line feed.
package result

import (
	"bytes"
	"encoding/json"

	"rollout/shared/fault"
)

// Row is the final row of one item of a shard.
type Row struct {
	Item  int         // within the shard
	Class fault.Class // "" for an output row, else why the item failed
	Bytes []byte      // one JSON line with its line feed
	// Copy, if not nil, says that the item gets a copy of another's answer, at
	// the run's end. Bytes then are its input line.
	Copy *Copied
}

// Copied is an item that is not asked, since an earlier one asks the same.
type Copied struct {
	Original uint64 // the item of the run that is asked
	Line     uint64 // the copy's own line in its file
}

// Append writes a result of the rows, which are in item order. outputLen is
// the length of the output rows.
func Append(dst []byte, rows []Row) (b []byte, outputLen int64) {
	start := len(dst)
	for _, r := range rows {
		if r.Class == "" {
			dst = append(dst, r.Bytes...)
		}
	}
	outputLen = int64(len(dst) - start)
	for _, r := range rows {
		if r.Class != "" {
			dst = append(dst, r.Bytes...)
		}
	}
	return dst, outputLen
}

// header is a checkpoint's first line; the rows' bytes follow, one after the
// other.
type header struct {
	Schema int         `json:"schema"`
	Rows   []rowHeader `json:"rows"`
}

type rowHeader struct {
	Item   int         `json:"i"`
	Class  fault.Class `json:"c,omitempty"`
	Length int         `json:"n"`
}

const schema = 1

// AppendCheckpoint writes a checkpoint of the rows. Copies are left out: the
// plan knows them.
func AppendCheckpoint(dst []byte, rows []Row) ([]byte, error) {
	h := header{Schema: schema, Rows: make([]rowHeader, 0, len(rows))}
	for _, r := range rows {
		if r.Copy == nil {
			h.Rows = append(h.Rows, rowHeader{r.Item, r.Class, len(r.Bytes)})
		}
	}
	b, err := json.Marshal(h)
	if err != nil {
		return dst, fault.WithKind(fault.Internal, err, "encode checkpoint")
	}
	dst = append(append(dst, b...), '\n')
	for _, r := range rows {
		if r.Copy == nil {
			dst = append(dst, r.Bytes...)
		}
	}
	return dst, nil
}

// ParseCheckpoint reads a checkpoint of a shard with that many items. The rows
// refer to b.
func ParseCheckpoint(b []byte, items int) ([]Row, error) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "decode checkpoint")
	}
	if h.Schema != schema {
		return nil, fault.New(fault.Invalid, "checkpoint has schema %d, this version reads %d", h.Schema, schema)
	}
	rows := make([]Row, 0, len(h.Rows))
	last := -1
	for _, r := range h.Rows {
		if r.Item <= last || r.Item >= items || r.Length < 1 || r.Length > len(rest) || rest[r.Length-1] != '\n' {
			return nil, fault.New(fault.Corrupt, "checkpoint of a shard of %d items: bad row of item %d, %d bytes", items, r.Item, r.Length)
		}
		last = r.Item
		rows = append(rows, Row{Item: r.Item, Class: r.Class, Bytes: rest[:r.Length:r.Length]})
		rest = rest[r.Length:]
	}
	if len(rest) > 0 {
		return nil, fault.New(fault.Corrupt, "checkpoint has %d bytes behind its rows", len(rest))
	}
	return rows, nil
}
