package facts

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"rollout/shared/fault"
	"rollout/shared/kind"
)

// Fact is what became of an item. A nil pointer is a null.
type Fact struct {
	Item             uint64
	ID               *string
	Class            fault.Class // of a failed item; "" is an answered one
	Error            *string     // of a failed item
	FinishReason     *string
	Prompt           *string
	Completions      []string // the answers; none of a failed item
	PromptTokens     *int64
	CompletionTokens *int64
	Score            *float64            // of all graders
	Scores           map[string]*float64 // by grader
	Own              []kind.Value        // in the order of the kind's columns; nil leaves all null
}

// The statuses of items.
const (
	Answered = "answered"
	Failed   = "failed"
)

// Position says which part of a run a file has. The file's metadata have it as JSON under
// PositionKey.
type Position struct {
	Part       int    `json:"part"`        // its number, from 0
	FirstShard int    `json:"first_shard"` // Shards of the run, from this one on
	Shards     int    `json:"shards"`
	FirstItem  uint64 `json:"first_item"`
	Items      uint64 `json:"items"` // rows of the file
}

// PositionKey is the key of the Position in the metadata of a file.
const PositionKey = "rollout"

// Sizes of what is collected before it is written, in bytes of texts. A row group is held
// in memory, compressed, until it is complete.
const (
	rowGroupBytes = 32 << 20
	batchBytes    = 1 << 20
	batchRows     = 1024
)

// Writer writes facts as a Parquet file. It is not safe for concurrent use.
type Writer struct {
	w       *parquet.GenericWriter[any]
	schema  schema
	rows    []parquet.Row
	bytes   int // of the texts in rows
	grouped int // of the texts in the row group
	at      Position
}

// NewWriter returns a writer of a part of a run with those graders, whose kind has those
// columns. The writer itself finds out the items of the position.
func NewWriter(to io.Writer, at Position, graders []string, own []kind.Column) *Writer {
	s := newSchema(graders, own)
	options := []parquet.WriterOption{s.Schema, parquet.Compression(&zstd.Codec{}),
		parquet.CreatedBy("rollout", "", "")}
	for _, name := range s.texts { // their bounds would repeat texts of any length
		options = append(options, parquet.SkipPageBounds(name), parquet.SkipPageStatistics(name))
	}
	at.FirstItem, at.Items = 0, 0
	return &Writer{w: parquet.NewGenericWriter[any](to, options...), schema: s, at: at}
}

// Write appends a fact.
func (w *Writer) Write(f Fact) error {
	r := rowWriter{row: make(parquet.Row, 0, columnsOfAll+1+len(w.schema.graders)+len(w.schema.own))}
	r.value(parquet.ValueOf(f.Item))
	r.text(f.ID)
	status, class := Answered, (*string)(nil)
	if f.Class != "" {
		status, class = Failed, new(string(f.Class))
	}
	r.value(parquet.ByteArrayValue([]byte(status)))
	r.text(class)
	r.text(f.Error)
	r.text(f.FinishReason)
	r.text(f.Prompt)
	r.completions(f.Completions)
	r.integer(f.PromptTokens)
	r.integer(f.CompletionTokens)
	if len(w.schema.graders) > 0 {
		r.number(f.Score)
	}
	for _, name := range w.schema.graders {
		r.number(f.Scores[name])
	}
	for i, c := range w.schema.own {
		var v kind.Value
		if i < len(f.Own) {
			v = f.Own[i]
		}
		if c.Integer {
			r.integer(v.Integer)
		} else {
			r.text(v.Text)
		}
	}
	if w.at.Items == 0 {
		w.at.FirstItem = f.Item
	}
	w.at.Items++
	w.rows, w.bytes = append(w.rows, r.row), w.bytes+r.bytes
	if w.bytes < batchBytes && len(w.rows) < batchRows {
		return nil
	}
	return w.flush()
}

// flush writes the rows that are collected, and the row group if it is complete.
func (w *Writer) flush() error {
	if _, err := w.w.WriteRows(w.rows); err != nil {
		return fault.Wrap(err, "write facts")
	}
	w.grouped += w.bytes
	clear(w.rows) // they keep texts
	w.rows, w.bytes = w.rows[:0], 0
	if w.grouped < rowGroupBytes {
		return nil
	}
	w.grouped = 0
	return fault.Wrap(w.w.Flush(), "write facts")
}

// Close completes the file. It does not close what it is written to.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	position, err := json.Marshal(w.at)
	if err != nil {
		return err
	}
	w.w.SetKeyValueMetadata(PositionKey, string(position))
	return fault.Wrap(w.w.Close(), "write facts")
}

// rowWriter collects the values of a row, in the order of the columns.
type rowWriter struct {
	row   parquet.Row
	bytes int // of texts
}

// value appends a value of a column that is never null.
func (r *rowWriter) value(v parquet.Value) { r.row = append(r.row, v.Level(0, 0, len(r.row))) }

// optional appends a value of a column that may be null.
func (r *rowWriter) optional(v parquet.Value) { r.row = append(r.row, v.Level(0, 1, len(r.row))) }

func (r *rowWriter) null() { r.row = append(r.row, parquet.NullValue().Level(0, 0, len(r.row))) }

// text appends a text. What is not UTF-8 in it, which a text of Parquet must be, becomes U+FFFD.
func (r *rowWriter) text(s *string) {
	if s == nil {
		r.null()
		return
	}
	valid := strings.ToValidUTF8(*s, "\uFFFD")
	r.bytes += len(valid)
	r.optional(parquet.ByteArrayValue([]byte(valid)))
}

func (r *rowWriter) integer(n *int64) {
	if n == nil {
		r.null()
		return
	}
	r.optional(parquet.Int64Value(*n))
}

func (r *rowWriter) number(x *float64) {
	if x == nil {
		r.null()
		return
	}
	r.optional(parquet.DoubleValue(*x))
}

// completions appends the first answer and, if there are several, all of them as a JSON array.
func (r *rowWriter) completions(answers []string) {
	if len(answers) == 0 {
		r.null()
		r.null()
		return
	}
	r.text(&answers[0])
	if len(answers) == 1 {
		r.null()
		return
	}
	all, err := json.Marshal(answers)
	if err != nil { // texts always have a JSON
		all = []byte("null")
	}
	r.text(new(string(all)))
}
