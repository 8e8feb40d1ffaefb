package worker

import (
	"maps"
	"sync"

	"rollout/shared/core/shard"
	"rollout/shared/result"
)

// rowPage is how many bytes of rows are stored side by side.
const rowPage = 64 << 10

// storeRow copies a row into the shard's pages. The caller holds s.mu.
func (s *Shard) storeRow(row []byte) []byte {
	n := len(s.page)
	if n+len(row) > cap(s.page) {
		s.fullPages = append(s.fullPages, s.page)
		s.page, n = s.pages.get(max(rowPage, len(row))), 0
	}
	s.page = append(s.page, row...)
	return s.page[n:len(s.page):len(s.page)]
}

// freeRows gives the pages back for other shards. Call it when a result object
// has the rows and the executor has returned.
func (s *Shard) freeRows() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rows)
	for _, page := range append(s.fullPages, s.page) {
		s.pages.put(page)
	}
	s.page, s.fullPages = nil, nil
}

// final returns the rows so far in item order, and their counts.
func (s *Shard) final() (rows []result.Row, c shard.Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows = make([]result.Row, 0, len(s.rows)-s.open)
	for i, b := range s.rows {
		if b != nil {
			rows = append(rows, result.Row{Item: i, Class: s.class[i], Bytes: b, Copy: s.copyOf(i)})
		}
	}
	c = s.counts
	c.ByClass, c.Finish = maps.Clone(c.ByClass), maps.Clone(c.Finish)
	c.Machines, c.TokenNanoUSD = s.machine.uses(), s.money.tokens.Load()
	return rows, c
}

// putCopies gives a row to each item that copies another item's answer. Such
// items are never sent to the engine and count as answered. Their row is the
// input line, from which finalize makes the output row.
func (s *Shard) putCopies() {
	for i, l := range s.Lines {
		if l.Original == nil {
			continue
		}
		s.rows[i] = append(append(make([]byte, 0, len(l.Bytes)+1), l.Bytes...), '\n')
		s.counts.OK++
		s.toBegin--
		s.open--
		s.openSaved--
	}
}

// copyOf names the item whose answer this item copies; nil if it has its own.
func (s *Shard) copyOf(item int) *result.Copied {
	l := s.Lines[item]
	if l.Original == nil {
		return nil
	}
	return &result.Copied{Original: l.Original.Item, Line: l.Place.Line}
}

// maxBuffer is the largest buffer that is kept for another use.
const maxBuffer = 4 << 20

// buffers is a pool of byte slices. Fresh memory of a shard's size would have to
// be cleared each time.
type buffers struct{ pool sync.Pool } // of *[]byte

// get returns an empty buffer whose capacity is at least room.
func (b *buffers) get(room int) []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok && cap(*kept) >= room {
		return (*kept)[:0]
	}
	return make([]byte, 0, room+room/8) // the next user may need a little more
}

// put gives a buffer back. The caller must not use it any more.
func (b *buffers) put(buf []byte) {
	if c := cap(buf); c > 0 && c <= maxBuffer {
		b.pool.Put(&buf)
	}
}
