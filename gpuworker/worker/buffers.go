package worker

import "sync"

// maxBuffer is the largest buffer that is kept for another use.
const maxBuffer = 4 << 20

// buffers are used again: fresh memory of a shard's size must be cleared first.
type buffers struct{ pool sync.Pool } // of *[]byte

// get returns an empty buffer with that much room.
func (b *buffers) get(room int) []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok && cap(*kept) >= room {
		return (*kept)[:0]
	}
	return make([]byte, 0, room+room/8) // the next one may need a little more
}

// put gives a buffer back that nobody reads any more.
func (b *buffers) put(buf []byte) {
	if c := cap(buf); c > 0 && c <= maxBuffer {
		b.pool.Put(&buf)
	}
}
