package kernel

// Lanes is the number of columns that stand together in a Matrix.
const Lanes = 16

// Padded is n rounded up to whole groups of Lanes.
func Padded(n int) int { return (n + Lanes - 1) / Lanes * Lanes }

// Matrix is the right-hand side of a product: columns in groups of Lanes, each
// group a panel whose rows are Step floats apart; panels are Panel floats
// apart. Element (k, j) is Data[j/Lanes*Panel + k*Step + j%Lanes]. A last
// group that is not full must still have all its Lanes in Data: their values
// are read, and what comes of them is dropped.
type Matrix struct {
	Data        []float32
	Step, Panel int
}

// NewMatrix makes room for a packed matrix of k rows and n columns.
func NewMatrix(k, n int) Matrix {
	return Matrix{Data: make([]float32, k*Padded(n)), Step: Lanes, Panel: k * Lanes}
}

// RowMajor sees k rows of stride floats each as a Matrix; stride must be a
// multiple of Lanes.
func RowMajor(data []float32, stride int) Matrix {
	return Matrix{Data: data, Step: stride, Panel: Lanes}
}

// from is the matrix without the columns before j, a multiple of Lanes.
func (m Matrix) from(j int) Matrix {
	m.Data = m.Data[j/Lanes*m.Panel:]
	return m
}

// PackTransposed packs w, outs rows of ins columns that are stride floats apart,
// as the Matrix of ins rows and outs columns: weights [out, in] become what
// turns inputs into outputs. dst comes from NewMatrix(ins, outs), or is larger.
func PackTransposed(dst Matrix, w []float32, outs, ins, stride int) {
	for j0 := 0; j0 < outs; j0 += Lanes {
		panel := dst.Data[j0/Lanes*dst.Panel:]
		for j := j0; j < min(j0+Lanes, outs); j++ {
			c := j - j0
			for i, v := range w[j*stride : j*stride+ins] {
				panel[i*Lanes+c] = v
			}
		}
	}
}

// PackRows packs w, k rows of n columns that are stride floats apart, as the
// Matrix of the same shape. dst comes from NewMatrix(k, n), or is larger.
func PackRows(dst Matrix, w []float32, k, n, stride int) {
	for j0 := 0; j0 < n; j0 += Lanes {
		panel := dst.Data[j0/Lanes*dst.Panel:]
		if j0+Lanes <= n {
			for i := range k {
				*(*[Lanes]float32)(panel[i*Lanes:]) = *(*[Lanes]float32)(w[i*stride+j0:])
			}
			continue
		}
		for i := range k {
			copy(panel[i*Lanes:i*Lanes+Lanes], w[i*stride+j0:i*stride+n])
		}
	}
}
