package convert

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"rollout/shared/fault"
)

// leaf reads the values of a column that has values, one after the other, over the row groups.
type leaf struct {
	column int
	pages  parquet.Pages
	page   parquet.Page
	reader parquet.ValueReader
	buf    [128]parquet.Value
	values []parquet.Value // those of buf that were not taken
}

// begin starts the column's part of a row group.
func (l *leaf) begin(chunk parquet.ColumnChunk) {
	l.end()
	l.pages = chunk.Pages()
}

// end releases what the column holds. Reading cannot fail any more, so that errors say nothing.
func (l *leaf) end() {
	if l.page != nil {
		parquet.Release(l.page)
	}
	if l.pages != nil {
		_ = l.pages.Close()
	}
	l.pages, l.page, l.reader, l.values = nil, nil, nil, nil
}

// peek returns the next value, or io.EOF at the end of the row group.
func (l *leaf) peek() (parquet.Value, error) {
	for len(l.values) == 0 {
		if l.reader == nil {
			page, err := l.pages.ReadPage()
			if err != nil {
				return parquet.Value{}, err
			}
			l.page, l.reader = page, page.Values()
		}
		n, err := l.reader.ReadValues(l.buf[:])
		l.values = l.buf[:n]
		if err != nil && !errors.Is(err, io.EOF) {
			return parquet.Value{}, err
		}
		if n == 0 {
			parquet.Release(l.page)
			l.page, l.reader = nil, nil
		}
	}
	return l.values[0], nil
}

// take returns the next value of a row, and moves on.
func (l *leaf) take() (parquet.Value, error) {
	v, err := l.peek()
	if err != nil {
		return v, tooFew(err)
	}
	l.values = l.values[1:]
	return v, nil
}

// tooFew returns the error of a column that ends before its row group does.
func tooFew(err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the column has fewer values than rows")
	}
	return damaged(err)
}

// damaged returns the error of a file that is not valid, or that cannot be read.
func damaged(err error) error {
	if fault.KindOf(err) != fault.Internal {
		return err
	}
	return invalid("it is damaged, cut short, or no Parquet: write it again", "read the Parquet file: %w", err)
}

// recoverDamage turns a panic of the library over a damaged file into an error.
func recoverDamage(err *error) {
	if r := recover(); r != nil {
		*err = damaged(fmt.Errorf("%v", r))
	}
}
