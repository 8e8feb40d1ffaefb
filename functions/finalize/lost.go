package finalize

import (
	"context"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/result"
)

// committed reads a shard's result, and checks that it is the one that was committed.
// One that is too large for memory is checked alone, and the bytes are nil, unless whole
// asks for them. Its error wraps result.ErrLost if reading it again does not help.
func (w *writer) committed(ctx context.Context, n int, ref shard.Ref, whole bool) ([]byte, error) {
	b, early, err := w.readahead.take(ctx, n)
	switch {
	case early || err != nil:
		return b, err
	case whole || ref.Length <= aheadBytes:
		return result.Read(ctx, w.Blobs, ref)
	}
	return nil, result.Verify(ctx, w.Blobs, ref, w.buf)
}

// lost writes a shard whose result is gone or damaged. Its items fail, but for those that
// a child kept from its parent: no other item suffers from it, and the run ends.
func (w *writer) lost(ctx context.Context, n int, d shard.Doc, why error) error {
	w.Log.ErrorContext(ctx, "a result is lost: its items fail", "run", w.manifest.Run, "shard", n, "error", why)
	if w.originals.lost == nil {
		w.originals.lost = map[int]bool{}
	}
	w.originals.lost[n] = true
	rows, kept, err := w.keptRows(ctx, n)
	if err != nil {
		return err
	}
	d.Counts.Kept, d.Counts.KeptFailed, d.Counts.Finish = kept.Kept, kept.KeptFailed, nil
	return w.unanswered(ctx, n, rows, d, cause{fault.Storage, why.Error()})
}
