package compare

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// Run is an ended run to compare.
type Run struct {
	Manifest record.Manifest
	Summary  record.Summary
}

// Row is what one run has of an item.
type Row struct {
	Item             uint64      `json:"item"` // its index
	ID               string      `json:"id"`
	Class            fault.Class `json:"class,omitempty"` // why it failed; "" for an answer
	Error            string      `json:"error,omitempty"`
	Answers          []string    `json:"answers,omitempty"`
	FinishReasons    []string    `json:"finish_reasons,omitempty"`
	PromptTokens     int64       `json:"prompt_tokens,omitempty"`
	CompletionTokens int64       `json:"completion_tokens,omitempty"`
	Score            *float64    `json:"score,omitempty"`
	// UsageUnknown says that the server did not report the tokens of an answer.
	UsageUnknown bool      `json:"-"`
	GeneratedAt  time.Time `json:"-"` // of an answer, if the dialect has it
}

// EachRow calls each for all rows of an ended run, in item order.
func EachRow(ctx context.Context, blobs blob.Store, run Run, each func(Row) error) (err error) {
	r, err := openRows(ctx, blobs, run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		row, err := r.read()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = each(row)
		}
		if err != nil {
			return err
		}
	}
}

// hasOwnID reports whether the line of the item has an id of its own. Rows of other lines
// have an item id in hex, or none.
func (r Row) hasOwnID() bool {
	_, err := hex.DecodeString(r.ID)
	return r.ID != "" && (err != nil || len(r.ID) != hex.EncodedLen(len(identity.ContentID{})))
}

// rows reads the rows of a run in item order.
type rows struct {
	run           Run
	outputs, errs *lines
	next          uint64 // the item that comes next
	failure       *Row   // the next error row that was read
}

func openRows(ctx context.Context, blobs blob.Store, run Run) (*rows, error) {
	outputs, err := openLines(ctx, blobs, record.OutputKey(run.Manifest.Run, record.CompletionsFile))
	if err != nil {
		return nil, err
	}
	errs, err := openLines(ctx, blobs, record.OutputKey(run.Manifest.Run, record.ErrorsFile))
	if err != nil {
		return nil, errors.Join(err, outputs.Close())
	}
	return &rows{run: run, outputs: outputs, errs: errs}, nil
}

func (r *rows) Close() error { return errors.Join(r.outputs.Close(), r.errs.Close()) }

// read returns the next row, or io.EOF after the last. Files that do not have one row of
// each item are Corrupt.
func (r *rows) read() (Row, error) {
	if r.failure == nil {
		if err := r.readFailure(); err != nil {
			return Row{}, err
		}
	}
	item := r.next
	r.next++
	if r.failure != nil && r.failure.Item == item {
		row := *r.failure
		r.failure = nil
		return row, nil
	}
	b, err := r.outputs.read()
	switch {
	case err == io.EOF && r.failure == nil && item == r.run.Summary.Items:
		return Row{}, io.EOF
	case err == io.EOF || err == nil && item >= r.run.Summary.Items:
		return Row{}, r.changed()
	case err != nil:
		return Row{}, err
	}
	return r.output(item, b)
}

func (r *rows) readFailure() error {
	b, err := r.errs.read()
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	f, ok := dialect.ReadFailure(dialect.Name(r.run.Manifest.Dialect), b)
	if !ok || f.Place.Item < r.next {
		return r.changed()
	}
	r.failure = &Row{Item: f.Place.Item, ID: f.ID, Class: f.Class, Error: f.Message}
	return nil
}

func (r *rows) output(item uint64, b []byte) (Row, error) {
	o, err := dialect.ReadOutput(dialect.Name(r.run.Manifest.Dialect), b)
	if err != nil {
		return Row{}, fault.Wrap(err, "item %d of run %s", item, r.run.Manifest.Run)
	}
	row := Row{Item: item, ID: o.ID, Answers: o.Texts, FinishReasons: o.FinishReasons,
		PromptTokens: o.Usage.PromptTokens, CompletionTokens: o.Usage.CompletionTokens,
		UsageUnknown: o.Usage.Unknown, GeneratedAt: o.GeneratedAt}
	if len(r.run.Manifest.Config.Grades) > 0 {
		scores, err := grade.ReadRow(b)
		if err != nil {
			return row, fault.Wrap(err, "item %d of run %s", item, r.run.Manifest.Run)
		}
		row.Score = scores.Score
	}
	return row, nil
}

func (r *rows) changed() error {
	return &fault.Error{Kind: fault.Corrupt,
		Err:    fmt.Errorf("the files of run %s do not have one row of each of its items", r.run.Manifest.Run),
		Remedy: "restore their older versions from the bucket: they were changed after the run"}
}

// maxRow bounds a row: the longest input line, and an answer of the same length.
const maxRow = 2 * jsonl.MaxLine

// lines reads the lines of an object.
type lines struct {
	io.Closer
	key     string
	ctx     context.Context
	scanner *jsonl.Scanner
}

func openLines(ctx context.Context, blobs blob.Store, key string) (*lines, error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	return &lines{Closer: r, key: key, ctx: ctx, scanner: jsonl.NewScanner(r, jsonl.Options{MaxLine: maxRow})}, nil
}

// read returns the next line, valid until the next call, or io.EOF.
func (l *lines) read() ([]byte, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, fault.WithKind(fault.Canceled, err, "read %s", l.key)
	}
	line, err := l.scanner.Next()
	switch {
	case err == io.EOF:
		return nil, io.EOF
	case err != nil:
		return nil, fault.Wrap(err, "read %s", l.key)
	case line.TooLong:
		return nil, fault.New(fault.Corrupt, "%s has a row of %d bytes", l.key, line.Length)
	}
	return line.Bytes, nil
}
