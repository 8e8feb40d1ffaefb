package shardtable

import (
	"encoding/binary"

	"rollout/shared/fault"
)

// FileEntry is what a shard has in the output files of its run. The entries of all
// shards, in order, are an object: entry n is that of shard n, and the rows of a
// shard begin in each file where those of the shard before end.
type FileEntry struct {
	Outputs, Errors uint64 // bytes of its rows in completions.jsonl and errors.jsonl
	OK, Failed      uint32 // their numbers
}

// FileEntrySize is the size of an encoded FileEntry in bytes.
const FileEntrySize = 24

// Append appends the entry's bytes.
func (e FileEntry) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, e.Outputs)
	dst = le.AppendUint64(dst, e.Errors)
	dst = le.AppendUint32(dst, e.OK)
	return le.AppendUint32(dst, e.Failed)
}

// ParseFileEntry reads an entry. b must have FileEntrySize bytes.
func ParseFileEntry(b []byte) FileEntry {
	le := binary.LittleEndian
	return FileEntry{Outputs: le.Uint64(b), Errors: le.Uint64(b[8:]), OK: le.Uint32(b[16:]), Failed: le.Uint32(b[20:])}
}

// Inherited is what a child run has of one shard from its parent: the rows in the
// parent's output files, and whether the child asks some of its items again.
type Inherited struct {
	FileEntry
	Touched   bool   // the child asks some of its items again
	FirstItem uint64 // of the shard, in the run
	OutputAt  uint64 // where its rows begin in the parent's completions.jsonl
	ErrorAt   uint64 // where they begin in its errors.jsonl
}

// Items returns how many items the shard has.
func (r Inherited) Items() int { return int(r.OK) + int(r.Failed) }

// InheritedSize is the size of an encoded Inherited in bytes.
const InheritedSize = FileEntrySize + 32

// Append appends the row's bytes.
func (r Inherited) Append(dst []byte) []byte {
	le := binary.LittleEndian
	touched := uint64(0)
	if r.Touched {
		touched = 1
	}
	dst = r.FileEntry.Append(dst)
	dst = le.AppendUint64(dst, touched)
	dst = le.AppendUint64(dst, r.FirstItem)
	dst = le.AppendUint64(dst, r.OutputAt)
	return le.AppendUint64(dst, r.ErrorAt)
}

// ParseInherited reads consecutive whole rows.
func ParseInherited(b []byte) ([]Inherited, error) {
	if len(b)%InheritedSize != 0 {
		return nil, fault.New(fault.Corrupt, "%d bytes are not whole rows of %d", len(b), InheritedSize)
	}
	le := binary.LittleEndian
	rows := make([]Inherited, 0, len(b)/InheritedSize)
	for ; len(b) > 0; b = b[InheritedSize:] {
		tail := b[FileEntrySize:]
		rows = append(rows, Inherited{FileEntry: ParseFileEntry(b), Touched: le.Uint64(tail) != 0,
			FirstItem: le.Uint64(tail[8:]), OutputAt: le.Uint64(tail[16:]), ErrorAt: le.Uint64(tail[24:])})
	}
	return rows, nil
}
