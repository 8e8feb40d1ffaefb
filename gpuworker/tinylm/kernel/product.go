package kernel

// Rows is the left-hand side of a product: element (r, k) is
// Data[r*Row + k*Col]. A row-major matrix has Col 1; a transposed one has Row 1.
type Rows struct {
	Data     []float32
	Row, Col int
}

// Product computes c[r*stride + j] = Σ_k a(r, k) · b(k, j) for m rows, depth
// terms and n columns, adding in the order of k. With add, each sum starts from
// the value in c, otherwise from zero; a long sum therefore has the same bits
// when it is computed in pieces. The parameters follow BLAS's gemm.
func (s Set) Product(c []float32, stride int, a Rows, b Matrix, m, depth, n int, add bool) {
	if m <= 0 || n <= 0 {
		return
	}
	if depth == 0 {
		if !add {
			for r := range m {
				clear(c[r*stride : r*stride+n])
			}
		}
		return
	}
	// These three reads check the bounds of every access below, in assembly too.
	_ = a.Data[(m-1)*a.Row+(depth-1)*a.Col]
	_ = b.Data[(n-1)/Lanes*b.Panel+(depth-1)*b.Step+Lanes-1]
	_ = c[(m-1)*stride+n-1]
	if s.vector {
		productVector(c, stride, a, b, m, depth, n, add)
		return
	}
	for j := 0; j < n; j += Lanes {
		panel := b.Data[j/Lanes*b.Panel:]
		for r := range m {
			scalarRow(c[r*stride+j:r*stride+min(j+Lanes, n)], a.Data[r*a.Row:], a.Col, panel, b.Step, depth, add)
		}
	}
}

// scalarRow computes up to Lanes columns of one row, four at a time.
func scalarRow(c, a []float32, aStep int, b []float32, bStep, depth int, add bool) {
	for len(c) >= 4 {
		var s0, s1, s2, s3 float32
		if add {
			s0, s1, s2, s3 = c[0], c[1], c[2], c[3]
		}
		ai, bi := 0, 0
		for range depth {
			x := a[ai]
			row := b[bi : bi+4 : bi+4]
			s0 += float32(x * row[0])
			s1 += float32(x * row[1])
			s2 += float32(x * row[2])
			s3 += float32(x * row[3])
			ai += aStep
			bi += bStep
		}
		c[0], c[1], c[2], c[3] = s0, s1, s2, s3
		c, b = c[4:], b[4:]
	}
	for j := range c {
		var sum float32
		if add {
			sum = c[j]
		}
		for k := range depth {
			sum += float32(a[k*aStep] * b[k*bStep+j])
		}
		c[j] = sum
	}
}
