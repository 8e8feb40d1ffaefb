package shardtable

import (
	"io"

	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
)

// CutOptions say how lines become shards.
type CutOptions struct {
	Input    uint32 // index of the input object in the run
	MaxItems int    // items a shard; 0 is DefaultItems
	MaxBytes int64  // bytes a shard, see CutBytes; 0 is the largest of them
}

// DefaultItems is how many items a shard holds if nobody says.
const DefaultItems = 256

// CutBytes is the size of shards of an input object: a 64th of it, within
// 4 KiB and 1 MiB.
func CutBytes(objectSize int64) int64 { return min(max(objectSize/64, minBytes), maxBytes) }

const (
	minBytes = 4 << 10
	maxBytes = 1 << 20
)

// Totals count a range.
type Totals struct {
	Rows  int64
	Items uint64
	Lines uint64 // blank ones included
	Bytes uint64 // of all its lines, also of those that no row holds
}

// Cutter makes shards of the lines of one range. A shard ends before the line
// that would be its item too many or take it over MaxBytes, so that a longer
// line has a shard of its own, and before and after a line that is too long to
// be read (which is an item: it gets an error line). Blank lines belong to the
// shard before them, those at the start of a range to the first shard. A range
// without an item has no row.
type Cutter struct {
	o       CutOptions
	row     Row // the open shard
	totals  Totals
	hash    *identity.Hasher
	closed  Row
	ready   bool // closed is to be returned
	spilled bool // the line being skipped was begun
}

// NewCutter returns a Cutter of one range.
func NewCutter(o CutOptions) *Cutter {
	if o.MaxItems <= 0 {
		o.MaxItems = DefaultItems
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = maxBytes
	}
	c := &Cutter{o: o, hash: identity.NewHasher()}
	c.row.Input = o.Input
	return c
}

// Scanner returns the scanner whose lines must be added, each of them: it
// feeds the bytes of lines that are too long to the digest.
func (c *Cutter) Scanner(r io.Reader, o jsonl.Options) *jsonl.Scanner {
	o.OnLongLine = c.spill
	return jsonl.NewScanner(r, o)
}

// Add takes the next line of the range. It returns the row of the shard that
// ended before it, if one did.
func (c *Cutter) Add(l jsonl.Line) (Row, bool) {
	if !l.Blank && !c.spilled && c.full(l) {
		c.end()
	}
	if c.row.Lines == 0 {
		c.row.Offset = uint64(l.Offset)
		c.row.FirstItem, c.row.FirstLine = c.totals.Items, c.totals.Lines
	}
	c.row.Lines++
	c.row.Length += uint64(l.Length)
	c.totals.Lines++
	c.totals.Bytes += uint64(l.Length)
	if !l.Blank {
		c.row.Items++
		c.totals.Items++
	}
	if l.TooLong {
		c.row.Flags |= FlagLong
		c.spilled = false
	}
	c.hash.Write(l.Raw)
	return c.take()
}

// Flush ends the range and returns its last row, if there is one.
func (c *Cutter) Flush() (Row, bool) {
	if c.row.Items > 0 {
		c.end()
	}
	return c.take()
}

// Totals counts what was added.
func (c *Cutter) Totals() Totals { return c.totals }

func (c *Cutter) full(l jsonl.Line) bool {
	return c.row.Items > 0 && (int64(c.row.Items) >= int64(c.o.MaxItems) ||
		int64(c.row.Length)+l.Length > c.o.MaxBytes || c.row.Flags&FlagLong != 0)
}

// spill takes a piece of a line that is too long, before its Add.
func (c *Cutter) spill(p []byte) {
	if !c.spilled {
		c.spilled = true
		if c.row.Items > 0 {
			c.end()
		}
	}
	c.hash.Write(p)
}

// end closes the open shard and opens the next.
func (c *Cutter) end() {
	c.row.Digest = c.hash.Sum()
	c.closed, c.ready = c.row, true
	c.totals.Rows++
	c.row = Row{Input: c.o.Input}
	c.hash.Reset()
}

func (c *Cutter) take() (Row, bool) {
	ready := c.ready
	c.ready = false
	if !ready {
		return Row{}, false
	}
	return c.closed, true
}
