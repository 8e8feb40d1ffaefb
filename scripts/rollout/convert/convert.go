package convert

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"rollout/scripts/rollout/outfile"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// Options say what to convert.
type Options struct {
	In, Out  string   // paths, or Std
	From, To string   // formats; "" goes by the names
	Columns  []string // NAME or NEW=OLD, in the order of the output; none keeps all
	Types    []string // COLUMN=TYPE of CSV cells, or "auto"; none are strings
	Force    bool     // replace an existing file
	Stdin    io.Reader
	Stdout   io.Writer

	// OnStart is called once with the number of bytes that will be read, 0 if unknown; OnRead with what was read.
	OnStart func(total int64)
	OnRead  func(n int)
}

// Summary says what was converted.
type Summary struct {
	In         string   `json:"in"`
	From       string   `json:"from"`
	Out        string   `json:"out"`
	To         string   `json:"to"`
	Rows       uint64   `json:"rows"`
	Columns    []string `json:"columns,omitempty"`     // of CSV and Parquet
	ShortRows  uint64   `json:"short_rows,omitempty"`  // CSV rows with fewer fields than the header
	NotNumbers uint64   `json:"not_numbers,omitempty"` // NaN and infinities, which became null
}

// conversion is one conversion in progress.
type conversion struct {
	Options
	summary Summary
	packing string
	columns columns
	types   cellTypes
	auto    bool   // the types are found by a pass of their own
	dir     string // for temporary files
	source  *source
}

// Convert converts a file. Its errors about the command line and the input's content are Invalid, and name the place.
func Convert(ctx context.Context, o Options) (s Summary, err error) {
	c := &conversion{Options: o, summary: Summary{In: o.In, Out: o.Out}}
	if err := c.check(); err != nil {
		return s, err
	}
	passes := c.passes()
	c.source, err = openSource(ctx, o, passes > 1 || c.summary.From == Parquet, c.dir)
	if err != nil {
		return s, fault.Wrap(err, "%s", c.inName())
	}
	defer func() { err = errors.Join(err, c.source.close()) }()
	o.OnStart(c.source.size * int64(passes))
	out, err := c.create()
	if err != nil {
		return s, err
	}
	if err := c.run(ctx, out); err != nil {
		return s, out.discard(fault.Wrap(err, "%s", c.inName()))
	}
	return c.summary, out.commit()
}

// check checks the options.
func (c *conversion) check() (err error) {
	if c.summary.From, err = inputFormat(c.In, c.From); err != nil {
		return err
	}
	if c.summary.To, c.packing, err = outputFormat(c.Out, c.To); err != nil {
		return err
	}
	if c.columns, err = parseColumns(c.Columns); err != nil {
		return err
	}
	if len(c.Types) > 0 {
		if c.summary.From != CSV && c.summary.From != TSV {
			return invalid(
				"leave it out: the other formats have types",
				"--types is for CSV, and the input is %s",
				c.summary.From,
			)
		}
		if c.types, c.auto, err = parseTypes(c.Types); err != nil {
			return err
		}
	}
	if c.Out == Std {
		return nil
	}
	c.dir = filepath.Dir(c.Out)
	info, err := os.Lstat(c.Out)
	if target, err := os.Stat(c.Out); err == nil { // else a link to nothing exists, too
		info = target
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &fault.Error{Kind: fault.Invalid, Op: "write the output", Err: err, Remedy: "name a writable path"}
	case info.IsDir():
		return invalid("name a file in it", "%s is a folder", c.Out)
	case !info.Mode().IsRegular(): // such as /dev/stdout, which a new file would replace
		return invalid("name a file, or - for standard output", "%s is not a regular file", c.Out)
	case !c.Force:
		return invalid("name another file, or replace it with --force", "%s already exists", c.Out)
	}
	return nil
}

func (c *conversion) inName() string {
	if c.In == Std {
		return "standard input"
	}
	return c.In
}

// passes returns how often the input is read.
func (c *conversion) passes() int {
	n := 1
	if c.auto {
		n++
	}
	if c.needsShape() {
		n++
	}
	return n
}

// needsShape reports whether the columns of the output, or their types, follow from all records.
func (c *conversion) needsShape() bool {
	isJSON := c.summary.From == JSON || c.summary.From == JSONL
	return c.summary.To == Parquet || fixedColumns(c.summary.To) && isJSON
}

// run reads the input as often as needed, and writes the output.
func (c *conversion) run(ctx context.Context, out io.Writer) error {
	if c.auto {
		if err := c.findTypes(ctx); err != nil {
			return err
		}
	}
	var s *shape
	if c.needsShape() {
		var err error
		if s, err = c.findShape(ctx); err != nil {
			return err
		}
	}
	packed, err := pack(out, c.packing)
	if err != nil {
		return err
	}
	var w writer
	err = c.each(ctx, func(r reader) (err error) {
		w, err = c.newWriter(packed, r, s)
		return err
	}, func(record []byte) error {
		c.summary.Rows++
		return w.write(record)
	})
	if err != nil {
		return err
	}
	return errors.Join(w.close(), unwritten(packed.Close()))
}

// findTypes finds the types of CSV columns.
func (c *conversion) findTypes(ctx context.Context) error {
	var f *typeFinder
	var names []string
	err := c.each(ctx, func(r reader) error {
		names = r.columns()
		f = newTypeFinder(len(names))
		return nil
	}, func(record []byte) error {
		f.add(names, record)
		return nil
	})
	if err == nil {
		c.types.found = f.types()
	}
	return err
}

// findShape finds the columns of all records, and for Parquet their types.
func (c *conversion) findShape(ctx context.Context) (*shape, error) {
	s := newShape()
	typed := c.summary.To == Parquet
	err := c.each(ctx, func(r reader) error {
		for _, name := range r.columns() {
			if _, err := s.addColumn(name); err != nil {
				return err
			}
		}
		return nil
	}, func(record []byte) error {
		return s.addRecord(record, typed)
	})
	return s, err
}

// each reads all records. It calls begin before the first one.
func (c *conversion) each(ctx context.Context, begin func(reader) error, do func(record []byte) error) error {
	r, err := c.newReader()
	if err != nil {
		return err
	}
	if err = begin(r); err == nil {
		err = eachRecord(ctx, r, do)
	}
	if err != nil {
		_ = r.close() // of a damaged archive it repeats err
		return err
	}
	c.note(r)
	return r.close()
}

// eachRecord reads the records of a reader to its end.
func eachRecord(ctx context.Context, r reader, do func(record []byte) error) error {
	for ctx.Err() == nil {
		record, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err = checkRecord(record); err == nil {
			err = do(record)
		}
		if err != nil {
			return at(r, err)
		}
	}
	return ctx.Err()
}

// note keeps what a pass noticed.
func (c *conversion) note(r reader) {
	switch r := r.(type) {
	case *csvReader:
		c.summary.ShortRows = r.short
	case *parquetReader:
		c.summary.NotNumbers = r.lost
	}
}

// newReader starts a pass over the input.
func (c *conversion) newReader() (reader, error) {
	if c.summary.From == Parquet {
		r, size, err := c.source.file(c.dir)
		if err != nil {
			return nil, err
		}
		return newParquetReader(r, size, c.columns)
	}
	in, err := c.source.open()
	if err != nil {
		return nil, err
	}
	if err := in.checkText(c.summary.From); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	if c.summary.From == JSON || c.summary.From == JSONL {
		return newJSONReader(in, c.columns), nil
	}
	r, err := newCSVReader(in, delimiter(c.summary.From), c.columns, c.types)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return r, nil
}

// newWriter starts the output.
func (c *conversion) newWriter(w io.Writer, r reader, s *shape) (writer, error) {
	if !fixedColumns(c.summary.To) {
		return &lineWriter{w: w}, nil
	}
	c.summary.Columns = r.columns()
	if s != nil {
		c.summary.Columns = s.names
	}
	if c.summary.To == Parquet {
		return newParquetWriter(w, s)
	}
	return newCSVWriter(w, delimiter(c.summary.To), c.summary.Columns)
}

// pack returns a writer that packs what is written to w. Closing it does not close w.
func pack(w io.Writer, packing string) (io.WriteCloser, error) {
	switch packing {
	case input.Gzip:
		return gzip.NewWriter(w), nil
	case input.Zstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		return z, err
	}
	return unpacked{w}, nil
}

type unpacked struct{ io.Writer }

func (unpacked) Close() error { return nil }

// output is a new file, which appears when it is complete, or standard output.
type output struct {
	*bufio.Writer
	file *outfile.File
}

func (c *conversion) create() (output, error) {
	if c.Out == Std {
		return output{Writer: bufio.NewWriterSize(c.Stdout, writeBuffer)}, nil
	}
	f, err := outfile.Create(c.Out)
	if err != nil {
		return output{}, &fault.Error{
			Kind:   fault.Invalid,
			Op:     "write " + c.Out,
			Err:    err,
			Remedy: "name a writable path",
		}
	}
	return output{bufio.NewWriterSize(f, writeBuffer), f}, nil
}

const writeBuffer = 256 << 10

// commit completes the output.
func (o output) commit() error {
	err := o.Flush()
	if o.file == nil {
		return unwritten(err)
	}
	if err != nil {
		return o.file.Discard(unwritten(err))
	}
	return o.file.CloseAndRename()
}

// discard removes an incomplete output, and returns why it is incomplete.
func (o output) discard(cause error) error {
	if o.file == nil {
		return cause
	}
	return o.file.Discard(cause)
}

// Notes says what the conversion changed that readers of the output may miss.
func (s Summary) Notes() (notes []string) {
	if s.ShortRows > 0 {
		notes = append(
			notes,
			fmt.Sprintf("rows with fewer fields than the header: %d (they lack the last columns)", s.ShortRows),
		)
	}
	if s.NotNumbers > 0 {
		notes = append(
			notes,
			fmt.Sprintf("NaN and infinities that became null: %d (JSON does not have them)", s.NotNumbers),
		)
	}
	return notes
}
