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
