package convert

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/jsonl"
)

// source opens an input as often as a conversion reads it.
type source struct {
	ctx     context.Context
	path    string   // of a regular file; "" for a copy or a stream
	copied  *os.File // the copy of a stream, without a name
	stream  io.Reader
	size    int64 // of a pass; 0 if unknown
	onRead  func(n int)
	closers []io.Closer
}

// openSource prepares an input. A stream, such as standard input or a pipe, is copied into a temporary file of the
// folder dir if it must be read more than once, or not in order.
func openSource(ctx context.Context, o Options, again bool, dir string) (*source, error) {
	s := &source{ctx: ctx, onRead: o.OnRead, stream: o.Stdin}
	if o.In != Std {
		info, err := os.Stat(o.In)
		switch {
		case err != nil:
			return nil, unreadable(err)
		case info.IsDir():
			return nil, invalid("name a file", "it is a folder")
		case info.Mode().IsRegular():
			s.path, s.size = o.In, info.Size()
			return s, nil
		}
		f, err := os.Open(o.In)
		if err != nil {
			return nil, unreadable(err)
		}
		s.stream, s.closers = f, append(s.closers, f)
	}
	stream := interruptible(ctx, s.stream)
	s.stream, s.closers = stream, append(s.closers, stream)
	if !again {
		return s, nil
	}
	return s, s.copyInto(dir, s.stream)
}

func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("name an existing file, or - for standard input", "it does not exist")
	}
	return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name a readable file"}
}

// copyInto copies a stream into a temporary file, which becomes what the source reads.
func (s *source) copyInto(dir string, r io.Reader) error {
	f, err := os.CreateTemp(dir, ".rollout-convert-")
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "copy the input")
	}
	s.closers = append(s.closers, f)
	if err := os.Remove(f.Name()); err != nil { // the file lives until it is closed
		return fault.WithKind(fault.Unavailable, err, "copy the input")
	}
	n, err := io.Copy(f, canceling{s.ctx, r})
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "copy the input")
	}
	s.path, s.copied, s.size = "", f, n
	return nil
}

// open starts a pass over the unpacked content. Packed files are recognized by their first bytes.
func (s *source) open() (*content, error) {
	c := &content{}
	raw := s.stream
	switch {
	case s.copied != nil:
		raw = io.NewSectionReader(s.copied, 0, s.size)
	case s.path != "":
		f, err := os.Open(s.path)
		if err != nil {
			return nil, unreadable(err)
		}
		c.closers = append(c.closers, f)
		raw = f
	}
	buffered := bufio.NewReaderSize(counting{canceling{s.ctx, raw}, s.onRead}, 256<<10)
	unpacked, err := input.Unpack(buffered, packingOf(buffered))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.closers = append(c.closers, unpacked)
	c.Reader = bufio.NewReaderSize(unpacked, 64<<10)
	return c, nil
}

// file returns the unpacked content for reading in any order. It copies a packed file into the folder dir.
func (s *source) file(dir string) (io.ReaderAt, int64, error) {
	if s.copied == nil {
		f, err := os.Open(s.path)
		if err != nil {
			return nil, 0, unreadable(err)
		}
		s.closers = append(s.closers, f)
		s.copied = f
	}
	if packingOf(bufio.NewReader(io.NewSectionReader(s.copied, 0, s.size))) != "" {
		c, err := s.open()
		if err != nil {
			return nil, 0, err
		}
		err = s.copyInto(dir, c)
		if err = errors.Join(err, c.Close()); err != nil {
			return nil, 0, err
		}
	}
	return countingAt{s.ctx, s.copied, s.onRead}, s.size, nil
}

func (s *source) close() error {
	var err error
	for _, c := range s.closers {
		err = errors.Join(err, c.Close())
	}
	return fault.WithKind(fault.Unavailable, err, "close the input")
}

// packingOf recognizes packed content by its first bytes.
func packingOf(r *bufio.Reader) string {
	head, _ := r.Peek(4) // a shorter file is not packed; a failure is met again
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return input.Gzip
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return input.Zstd
	}
	return ""
}

// content is the unpacked content of an input.
type content struct {
	*bufio.Reader
	closers []io.Closer
}

// Close closes what was opened, the last first.
func (c *content) Close() error {
	var err error
	for i := len(c.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, c.closers[i].Close())
	}
	return err
}

// checkText refuses content that is not text in UTF-8, or of another format than was said.
func (c *content) checkText(format string) error {
	head, err := c.Peek(64)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.HasPrefix(head, []byte("PAR1")) {
		return invalid("use --from parquet", "it is Parquet, not %s", format)
	}
	if err := jsonl.Sniff(head); err != nil {
		return err
	}
	start := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF")), " \t\r\n")
	isJSON := len(start) == 0 || start[0] == '{' || start[0] == '['
	switch {
	case !isJSON && (format == JSON || format == JSONL):
		return invalid("if it is CSV, use --from csv", "it does not begin with { or [ as JSON objects do")
	case len(start) > 1 && start[0] == '{' && start[1] == '"' && (format == CSV || format == TSV):
		return invalid("use --from json", "it is JSON, not %s", format)
	}
	return nil
}

// canceling ends reading when its context ends.
type canceling struct {
	ctx context.Context
	r   io.Reader
}

func (c canceling) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// interruptible returns a reader of r that ends with the context also while r waits for input, as a terminal or a pipe
// may for ever. Closing it does not close r.
func interruptible(ctx context.Context, r io.Reader) io.ReadCloser {
	read, write := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = write.CloseWithError(ctx.Err()) }) // never fails
	go func() {
		defer stop()
		_, err := io.Copy(write, r)
		_ = write.CloseWithError(err)
	}()
	return read
}

// counting reports how much was read.
type counting struct {
	r      io.Reader
	onRead func(n int)
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.onRead(n)
	return n, err
}

// countingAt is counting and canceling for reading in any order.
type countingAt struct {
	ctx    context.Context
	r      io.ReaderAt
	onRead func(n int)
}

func (c countingAt) ReadAt(p []byte, offset int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.ReadAt(p, offset)
	c.onRead(n)
	return n, err
}
