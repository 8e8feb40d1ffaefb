package shardtable

import "rollout/shared/jsonl"

// RangeScanOptions says how range i of an object is scanned, with a reader that
// starts at the Offset it returns and ends with the object: a line that starts
// in the range may end behind it.
func RangeScanOptions(i int64) jsonl.Options {
	o := jsonl.Options{Offset: i * RangeSize, Limit: (i + 1) * RangeSize}
	if i > 0 {
		o.Offset--
		o.SkipPartial = true
	}
	return o
}

// ScanOptions says how the lines of the shard are read, from a reader of its Length
// bytes at its Offset.
func (r Row) ScanOptions() jsonl.Options { return jsonl.Options{Offset: int64(r.Offset)} }
