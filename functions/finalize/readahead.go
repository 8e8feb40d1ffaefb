package finalize

import (
	"context"

	"rollout/shared/core/shard"
	"rollout/shared/result"
)

// Bounds of what is read ahead: the number of results, and the bytes of one. A
// larger result is streamed when it is written.
const (
	aheadResults = 8
	aheadBytes   = 4 << 20
)

// readahead reads the results of a batch of shards before they are written,
// several at once, because a remote store answers concurrent requests faster
// than one after another. The caller takes the results in order.
type readahead struct {
	first   int
	results []chan fetched // by shard; nil for a result that is not read ahead
	tokens  chan struct{}  // one for each result that was not taken yet
	stop    context.CancelFunc
}

type fetched struct {
	bytes []byte
	err   error
}

// readAhead begins to read the results of the shards from first on. The caller
// must call stop.
func (w *writer) readAhead(ctx context.Context, first int, docs []shard.Doc) *readahead {
	ctx, stop := context.WithCancel(ctx)
	a := &readahead{first: first, results: make([]chan fetched, len(docs)),
		tokens: make(chan struct{}, aheadResults), stop: stop}
	for i, d := range docs {
		role, err := w.index.RoleOf(ctx, w.manifest, first+i) // shard meets the error again
		if err == nil && w.manifest.HasOutput(role) && d.State == shard.Done && d.Result != nil &&
			d.Result.Length <= aheadBytes && !w.neverSent(first+i) {
			a.results[i] = make(chan fetched, 1)
		}
	}
	go func() {
		for i, to := range a.results {
			if to == nil {
				continue
			}
			select {
			case a.tokens <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				b, err := result.Read(ctx, w.Blobs, *docs[i].Result)
				to <- fetched{b, err}
			}()
		}
	}()
	return a
}

// take returns the result of shard n. ok is false if it is not read ahead.
func (a *readahead) take(ctx context.Context, n int) (b []byte, ok bool, err error) {
	if a == nil || a.results[n-a.first] == nil {
		return nil, false, nil
	}
	select {
	case got := <-a.results[n-a.first]:
		<-a.tokens
		return got.bytes, true, got.err
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}
