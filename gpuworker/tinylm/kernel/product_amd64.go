package kernel

import "unsafe"

//go:generate go run ./internal/mkproduct

// block describes the part of a product that one call of the assembly computes:
// the addresses of its operands and their strides in bytes. The assembly knows
// the order of the fields.
type block struct {
	c, a, b                       unsafe.Pointer
	stride, row, col, step, panel uintptr
	depth, add                    uintptr
}

//go:noescape
func product6x16(b *block)

//go:noescape
func product5x16(b *block)

//go:noescape
func product4x16(b *block)

//go:noescape
func product3x32(b *block)

//go:noescape
func product3x16(b *block)

//go:noescape
func product2x32(b *block)

//go:noescape
func product2x16(b *block)

//go:noescape
func product1x64(b *block)

//go:noescape
func product1x32(b *block)

//go:noescape
func product1x16(b *block)

// tileRows is the number of rows of the tallest block. nearColumns is the number
// of columns that all rows pass through before the next columns are loaded; the
// widest block has as many.
const (
	tileRows    = 6
	nearColumns = 64
)

// productVector is Product with AVX2. The caller checks the bounds.
func productVector(c []float32, stride int, a Rows, b Matrix, m, depth, n int, add bool) {
	blk := block{
		stride: uintptr(stride) * 4, row: uintptr(a.Row) * 4, col: uintptr(a.Col) * 4,
		step: uintptr(b.Step) * 4, panel: uintptr(b.Panel) * 4, depth: uintptr(depth),
	}
	if add {
		blk.add = 1
	}
	full := n / Lanes * Lanes // columns in whole panels
	tall := m / tileRows * tileRows
	// All rows pass through a few panels at a time, so that each panel is loaded
	// from memory once and then stays in the cache.
	for first := 0; first < full; first += nearColumns {
		last := min(first+nearColumns, full)
		for j := first; j < last && tall > 0; j += Lanes {
			blk.b = unsafe.Pointer(&b.Data[j/Lanes*b.Panel])
			for r := 0; r < tall; r += tileRows {
				blk.a, blk.c = unsafe.Pointer(&a.Data[r*a.Row]), unsafe.Pointer(&c[r*stride+j])
				product6x16(&blk)
			}
		}
		if tall < m {
			blk.a = unsafe.Pointer(&a.Data[tall*a.Row])
			for j := first; j < last; {
				blk.b, blk.c = unsafe.Pointer(&b.Data[j/Lanes*b.Panel]), unsafe.Pointer(&c[tall*stride+j])
				j += shortBlock(&blk, m-tall, last-j)
			}
		}
	}
	if full == n {
		return
	}
	// The last panel has fewer than Lanes columns in c, but the assembly writes
	// all Lanes: it writes to edge, from which the valid columns are copied.
	var edge [tileRows * Lanes]float32
	blk.b, blk.c, blk.stride = unsafe.Pointer(&b.Data[full/Lanes*b.Panel]), unsafe.Pointer(&edge), Lanes*4
	for r := 0; r < m; r += tileRows {
		rows := min(tileRows, m-r)
		if add {
			for i := range rows {
				copy(edge[i*Lanes:(i+1)*Lanes], c[(r+i)*stride+full:(r+i)*stride+n])
			}
		}
		blk.a = unsafe.Pointer(&a.Data[r*a.Row])
		shortBlock(&blk, rows, Lanes)
		for i := range rows {
			copy(c[(r+i)*stride+full:(r+i)*stride+n], edge[i*Lanes:])
		}
	}
}

// shortBlock computes a block of up to six rows with the widest function that
// fits the columns left, which are whole panels. It returns the number of
// columns computed.
func shortBlock(b *block, rows, columns int) int {
	switch rows {
	case 6:
		product6x16(b)
	case 5:
		product5x16(b)
	case 4:
		product4x16(b)
	case 3:
		if columns >= 32 {
			product3x32(b)
			return 32
		}
		product3x16(b)
	case 2:
		if columns >= 32 {
			product2x32(b)
			return 32
		}
		product2x16(b)
	default:
		switch {
		case columns >= 64:
			product1x64(b)
			return 64
		case columns >= 32:
			product1x32(b)
			return 32
		}
		product1x16(b)
	}
	return 16
}
