package convert

import (
	"fmt"
	"io"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// maxRecord is the longest record in bytes, so that a damaged file is not read into memory. A line of prompts may have
// a quarter of it.
const maxRecord = 64 << 20

// reader reads the records of an input, one after the other.
type reader interface {
	// next returns the next record, a valid JSON object whose text stays valid until the next call. It returns io.EOF
	// after the last one.
	next() ([]byte, error)
	// columns returns the columns that are known without reading records, under the names of the output: those of a CSV
	// header or a Parquet schema. It returns nil for JSON.
	columns() []string
	// place names where the last record is, for errors. Examples: "line 17", "row 17".
	place() string
	close() error
}

// bounded limits how much one record reads. A decoder reads ahead, so that the limit is not exact.
type bounded struct {
	r    io.Reader
	left int
	what string // for the error: "a JSON value", "a CSV row"
	hint string
}

// begin starts a record.
func (b *bounded) begin() { b.left = maxRecord }

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, invalid(b.hint, "%s has more than %d MiB", b.what, maxRecord>>20)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// checkRecord checks that all that reads a record can walk it, and prompts that are read later: package jsonl allows
// less nesting than readers do.
func checkRecord(record []byte) error {
	if err := jsonl.Check(record); err != nil {
		return invalid("make its values flatter", "the record is not valid: %w", err)
	}
	return nil
}

// at adds the place of a record to an error.
func at(r reader, err error) error { return fault.Wrap(err, "%s", r.place()) }

// row names a record by its number, from 1.
func row(n uint64) string { return fmt.Sprintf("row %d", n) }
