package kernel

// Lanes is the number of columns in a panel of a Matrix.
const Lanes = 16

// Padded returns n rounded up to a multiple of Lanes.
func Padded(n int) int { return (n + Lanes - 1) / Lanes * Lanes }

// Matrix is the right-hand side of a product. Its columns form panels of Lanes
// columns each. The rows of a panel are Step floats apart, and panels are Panel
// floats apart: element (k, j) is Data[j/Lanes*Panel + k*Step + j%Lanes]. Data
// must hold all Lanes of the last panel, even if the matrix has fewer columns:
// Product reads the extra values and drops what it computes from them.
type Matrix struct {
	Data        []float32
	Step, Panel int
}

// NewMatrix allocates a packed matrix of k rows and n columns, all zero.
func NewMatrix(k, n int) Matrix {
	return Matrix{Data: make([]float32, k*Padded(n)), Step: Lanes, Panel: k * Lanes}
}

// RowMajor returns a Matrix that shares data: rows of stride floats each, stride
// being a multiple of Lanes.
func RowMajor(data []float32, stride int) Matrix {
	return Matrix{Data: data, Step: stride, Panel: Lanes}
}

// PackTransposed packs the transpose of w into dst, a Matrix of ins rows and
// outs columns. w has outs rows of ins columns; its rows are stride floats
// apart. Weights [out, in] so become the right-hand side that turns inputs into
// outputs. dst is as large as NewMatrix(ins, outs), or larger.
func (s Set) PackTransposed(dst Matrix, w []float32, outs, ins, stride int) {
	for j0 := 0; j0 < outs; j0 += Lanes {
		panel, first := dst.Data[j0/Lanes*dst.Panel:], 0
		if n := s.whole(ins); n > 0 && j0+Lanes <= outs {
			_, _ = panel[n*Lanes-1], w[(j0+Lanes-1)*stride+n-1]
			transposePanelVector(&panel[0], &w[j0*stride], n/8, stride*4)
			first = n
		}
		for j := j0; j < min(j0+Lanes, outs); j++ {
			c := j - j0
			for i := first; i < ins; i++ {
				panel[i*Lanes+c] = w[j*stride+i]
			}
		}
	}
}

// PackRows packs w into dst, a Matrix of the same shape. w has k rows of n
// columns; its rows are stride floats apart. dst is as large as NewMatrix(k, n),
// or larger.
func (s Set) PackRows(dst Matrix, w []float32, k, n, stride int) {
	if k == 0 {
		return
	}
	for j0 := 0; j0 < n; j0 += Lanes {
		panel := dst.Data[j0/Lanes*dst.Panel:]
		width := min(Lanes, n-j0)
		if s.vector && width == Lanes {
			_, _ = panel[k*Lanes-1], w[(k-1)*stride+j0+Lanes-1]
			copyPanelVector(&panel[0], &w[j0], k, stride*4)
			continue
		}
		for i := range k {
			copy(panel[i*Lanes:i*Lanes+Lanes], w[i*stride+j0:i*stride+j0+width])
		}
	}
}
