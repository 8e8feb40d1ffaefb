package shardtable

import (
	"io"
	"math"

	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
)

// CutOptions are the limits of a shard.
type CutOptions struct {
	Input    uint32 // index of the input object in the run
	MaxItems int    // in a shard; 0: DefaultItems
	MaxBytes int64  // in a shard, see CutBytes; 0: 1 MiB
	// FillBytes are of a shard that has more than DefaultItems: it has MaxItems or FillBytes
	// at most, whichever is first. 0: MaxItems alone counts.
	FillBytes int64
	// Role and Variant are those of all items, unless Mark says otherwise.
	Role    uint32
	Variant uint32
	// Counts are the numbers of items of the first shards, whatever MaxItems and
	// MaxBytes are: each at least 1.
	Counts []int
}

// DefaultItems is the default of CutOptions.MaxItems.
const DefaultItems = 256

// MostItems is the largest number of items of a shard of a large input, if none is chosen.
const MostItems = 1024

// fullShards is how many shards an input is cut into before they have more than DefaultItems.
const fullShards = 2048

// CutObject returns how an input object of a size is cut: into shards of so many items, the
// shard.items of the config. 0 chooses: a shard has DefaultItems. Each shard costs an object,
// writes of documents and a step of coordinate, whatever its size, and an input of a million
// lines has far more shards than workers. Shards of such an input have up to MostItems, as
// long as a shard is not more than a 2048th of it.
func CutObject(items int, size int64) CutOptions {
	o := CutOptions{MaxItems: items, MaxBytes: CutBytes(size)}
	if items == 0 {
		o.MaxItems, o.FillBytes = MostItems, max(1, size/fullShards)
	}
	return o
}

// CutBytes returns MaxBytes for the shards of an input object: a 64th of its size,
// but at least 4 KiB and at most 1 MiB.
func CutBytes(objectSize int64) int64 { return min(max(objectSize/64, minBytes), maxBytes) }

const (
	minBytes = 4 << 10
	maxBytes = 1 << 20
)

// Totals are the counts of a range.
type Totals struct {
	Rows  int64
	Items uint64
	Lines uint64 // blank ones included
	Bytes uint64 // of all lines, also of blank ones without a row
}

// Cutter cuts the lines of one range into shards. A shard ends
//
//   - before a line that would exceed MaxItems or MaxBytes, so that a line of more
//     than MaxBytes has its own shard; one of Counts ends when it has its items,
//   - with DefaultItems, before a line that would exceed FillBytes,
//   - before and after a line over the length limit of the scanner, which is an item
//     and gets an error row.
//
// Blank lines belong to the shard before them, and at the start of the range to the
// first shard. A range without an item has no row. A Cutter is not safe for
// concurrent use.
type Cutter struct {
	o       CutOptions
	row     Row // the open shard
	totals  Totals
	hash    *identity.Hasher
	closed  Row
	ready   bool // closed must still be returned
	spilled bool // pieces of a too long line were hashed
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
	c.row = c.open()
	return c
}

// Scanner returns the scanner whose lines the caller passes to Add, every one of them.
// The scanner hashes the bytes of too long lines for the Cutter.
func (c *Cutter) Scanner(r io.Reader, o jsonl.Options) *jsonl.Scanner {
	o.OnLongLine = c.spill
	return jsonl.NewScanner(r, o)
}

// Add adds the next line of the range. If a shard ended before it, Add returns its
// row and true.
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

// Mark sets the attributes of the open shard, which holds the line that was added last.
func (c *Cutter) Mark(chain, variant, role uint32) {
	c.row.Chain, c.row.Variant, c.row.Role = chain, variant, role
}

// Flush ends the range. It returns the last row and true, if there is one.
func (c *Cutter) Flush() (Row, bool) {
	if c.row.Items > 0 {
		c.end()
	}
	return c.take()
}

// Totals returns the counts of the added lines.
func (c *Cutter) Totals() Totals { return c.totals }

// full reports whether the open shard must end before l.
func (c *Cutter) full(l jsonl.Line) bool {
	items, size := c.o.MaxItems, c.o.MaxBytes
	if n := c.totals.Rows; n < int64(len(c.o.Counts)) {
		items, size = c.o.Counts[n], math.MaxInt64-jsonl.MaxLine
	}
	if c.row.Items >= DefaultItems && c.o.FillBytes > 0 {
		size = min(size, c.o.FillBytes)
	}
	return c.row.Items > 0 && (int64(c.row.Items) >= int64(items) ||
		int64(c.row.Length)+l.Length > size || c.row.Flags&FlagLong != 0)
}

// spill hashes a piece of a too long line, before its Add.
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
	c.row = c.open()
	c.hash.Reset()
}

// open returns the row of a shard without lines.
func (c *Cutter) open() Row { return Row{Input: c.o.Input, Role: c.o.Role, Variant: c.o.Variant} }

// take returns the closed shard once.
func (c *Cutter) take() (Row, bool) {
	ready := c.ready
	c.ready = false
	if !ready {
		return Row{}, false
	}
	return c.closed, true
}

// RangeScanOptions returns how to scan range i of an object. The reader must start at
// the returned Offset and end with the object, because a line that begins in the
// range may end after it.
func RangeScanOptions(i int64) jsonl.Options {
	o := jsonl.Options{Offset: i * RangeSize, Limit: (i + 1) * RangeSize}
	if i > 0 {
		o.Offset--
		o.SkipPartial = true
	}
	return o
}

// ScanOptions returns how to scan the lines of the shard from a reader of its Length
// bytes at its Offset.
func (r Row) ScanOptions() jsonl.Options { return jsonl.Options{Offset: int64(r.Offset)} }
