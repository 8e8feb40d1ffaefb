package kernel

// PackTransposed packs w, outs rows of ins columns that are stride floats apart,
// as the Matrix of ins rows and outs columns: weights [out, in] become what
// turns inputs into outputs. dst comes from NewMatrix(ins, outs), or is larger.
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

// PackRows packs w, k rows of n columns that are stride floats apart, as the
// Matrix of the same shape. dst comes from NewMatrix(k, n), or is larger.
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
