package finalize

import "rollout/shared/shardtable"

// position is how much of a run's files is written.
type position struct {
	outputs, errors uint64 // bytes
	ok, failed      int    // rows
}

func (w *writer) position() position {
	c := w.totals.counts
	return position{w.out.written, w.errs.written, c.OK, c.Failed}
}

// addEntry adds the entry of a shard whose rows are those since the position.
func (w *writer) addEntry(since position) error {
	now := w.position()
	e := shardtable.FileEntry{Outputs: now.outputs - since.outputs, Errors: now.errors - since.errors,
		OK: uint32(now.ok - since.ok), Failed: uint32(now.failed - since.failed)}
	_, err := w.entries.Write(e.Append(make([]byte, 0, shardtable.FileEntrySize)))
	return err
}
