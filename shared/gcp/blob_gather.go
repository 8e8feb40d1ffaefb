package gcp

import (
	"context"
	"io"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

const (
	// gatherers is how many blocks of one gathering are read at once, or wait in memory.
	gatherers = 16
	// gatherBlock is the largest block, in bytes.
	gatherBlock = 512 << 10
)

// gathering reads pieces one after another. It reads ahead, because a Join of many
// small results would otherwise wait for one answer after another.
type gathering struct {
	ctx    context.Context
	cancel context.CancelFunc
	blocks chan chan block // in order; each block's channel gets one value
	rest   []byte          // of the present block
	err    error           // after rest
}

// block is a part of a piece, or the error of reading it.
type block struct {
	content []byte
	err     error
}

// gather returns a reader of the pieces' bytes, to be closed. Its errors have kinds.
func (b *Bucket) gather(ctx context.Context, pieces []piece) *gathering {
	ctx, cancel := context.WithCancel(ctx)
	g := &gathering{ctx: ctx, cancel: cancel, blocks: make(chan chan block, gatherers)}
	go func() {
		defer close(g.blocks)
		for _, p := range pieces {
			for p.length > 0 {
				part := p
				part.length = min(p.length, gatherBlock)
				p.offset, p.length = p.offset+part.length, p.length-part.length
				read := make(chan block, 1)
				select {
				case g.blocks <- read:
				case <-ctx.Done():
					return
				}
				go func() {
					content, err := b.read(ctx, part)
					read <- block{content, err}
				}()
			}
		}
	}()
	return g
}

// Read returns the next bytes; see io.Reader.
func (g *gathering) Read(p []byte) (int, error) {
	for len(g.rest) == 0 && g.err == nil {
		next, ok := <-g.blocks
		switch {
		case ok:
			got := <-next
			g.rest, g.err = got.content, got.err
		case g.ctx.Err() != nil: // the pieces may not be complete
			g.err = fault.Wrap(g.ctx.Err(), "read the parts")
		default:
			g.err = io.EOF
		}
	}
	if len(g.rest) == 0 {
		return 0, g.err
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// Close ends the reading ahead.
func (g *gathering) Close() error {
	g.cancel()
	return nil
}

// read returns the bytes of a piece of at most gatherBlock bytes.
func (b *Bucket) read(ctx context.Context, p piece) ([]byte, error) {
	o := blob.GetOptions{Version: formatVersion(p.generation), Offset: p.offset, Length: p.length}
	r, _, err := b.Get(ctx, p.key, o)
	if err != nil {
		return nil, err
	}
	defer r.Close() // opened for reading
	content := make([]byte, p.length)
	if _, err := io.ReadFull(r, content); err != nil {
		if fault.Is(err, fault.Internal) { // an end before the last byte
			err = fault.WithKind(fault.Unavailable, err, "read object %s", p.key)
		}
		return nil, err
	}
	return content, nil
}
