// Package result encodes the rows of a shard: the result object of a finished shard,
// and the checkpoint object of an unfinished one.
//
// A result holds the output rows and then the error rows, each in item order, and
// nothing else, so that a store can join results without reading them. In runs that
// ask identical requests once (config.Dedupe), it also has the lines of copies, and
// ends in an index. A checkpoint names the item of every row. Rows are opaque here:
// each is one line that ends in a line feed.
//
// It also reads the rows that a child run has from its parent's output files.
package result

import (
	"bytes"
	"context"
	"encoding/json"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// Row is the final row of one item of a shard.
type Row struct {
	Item  int         // in the shard
	Class fault.Class // why the item failed; "" for an output row
	Bytes []byte      // one JSON line with its line feed
	// Copy is not nil for an item that gets a copy of another item's answer at the
	// run's end. Bytes is then its input line.
	Copy *Copied
}

// Copied describes an item that is not asked, because an earlier item has the same
// request.
type Copied struct {
	Original uint64 // the earlier item, by its index in the run
	Line     uint64 // the line of the copy in its file
}

// Append appends a result of the rows, which must be in item order. outputLen is the
// length of the output rows in bytes.
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

// header is the first line of a checkpoint. The bytes of the rows follow it.
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

// AppendCheckpoint appends a checkpoint of the rows. It omits copies, which the plan
// names.
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

// ParseCheckpoint reads a checkpoint of a shard with that many items. The bytes of
// the rows are parts of b. An invalid checkpoint is Corrupt.
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
			return nil, fault.New(fault.Corrupt, "checkpoint of a shard of %d items: bad row of item %d, %d bytes",
				items, r.Item, r.Length)
		}
		last = r.Item
		rows = append(rows, Row{Item: r.Item, Class: r.Class, Bytes: rest[:r.Length:r.Length]})
		rest = rest[r.Length:]
	}
	if len(rest) > 0 {
		return nil, fault.New(fault.Corrupt, "checkpoint has %d bytes after its rows", len(rest))
	}
	return rows, nil
}

// ReadCheckpoint reads the checkpoint object of a shard with that many items, and
// verifies its digest.
func ReadCheckpoint(ctx context.Context, blobs blob.Store, c shard.Ref, items int) ([]Row, error) {
	b, err := input.ReadObject(ctx, blobs, c.Key, c.Length)
	if err != nil {
		return nil, lost(err)
	}
	if int64(len(b)) != c.Length || identity.Content(b).String() != c.Digest {
		return nil, lost(fault.New(fault.Corrupt, "checkpoint %s does not have the digest in its shard's document", c.Key))
	}
	return ParseCheckpoint(b, items)
}
