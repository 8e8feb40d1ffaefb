package kernel

import "math"

// Sum adds up a row in eight interleaved sums, lane i taking elements i, i+8,
// i+16, …, and then the lanes: (0+4)+(2+6) and (1+5)+(3+7), then these two. It
// is the order that eight lanes of a vector add in.
func (s Set) Sum(x []float32) float32 {
	var l [8]float32
	if n := s.whole(len(x)); n > 0 {
		sumVector(&l, &x[0], n)
		x = x[n:]
	}
	for ; len(x) >= 8; x = x[8:] {
		v := (*[8]float32)(x)
		for i := range l {
			l[i] += v[i]
		}
	}
	for i, v := range x {
		l[i] += v
	}
	return fold(l)
}

// Dot is Σ x[i]·y[i] in the order of Sum.
func (s Set) Dot(x, y []float32) float32 {
	y = y[:len(x)]
	var l [8]float32
	if n := s.whole(len(x)); n > 0 {
		dotVector(&l, &x[0], &y[0], n)
		x, y = x[n:], y[n:]
	}
	for ; len(x) >= 8; x, y = x[8:], y[8:] {
		v, w := (*[8]float32)(x), (*[8]float32)(y)
		for i := range l {
			l[i] += float32(v[i] * w[i])
		}
	}
	for i, v := range x {
		l[i] += float32(v * y[i])
	}
	return fold(l)
}

func fold(l [8]float32) float32 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// whole is how many of n elements the vector functions take.
func (s Set) whole(n int) int {
	if !s.vector {
		return 0
	}
	return n &^ 7
}

// Max is the largest element of a row that is not empty; with a NaN in it, it
// is any of its elements.
func (s Set) Max(x []float32) float32 {
	m := x[0]
	if n := s.whole(len(x)); n > 0 {
		var l [8]float32
		maxVector(&l, &x[0], n)
		m, x = s.maxOf(l[0], l[1:]), x[n:]
	}
	return s.maxOf(m, x)
}

func (s Set) maxOf(m float32, x []float32) float32 {
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// Finite says whether no element is infinite or NaN.
func (s Set) Finite(x []float32) bool {
	if n := s.whole(len(x)); n > 0 {
		if finiteVector(&x[0], n) != 0 {
			return false
		}
		x = x[n:]
	}
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// Exps sets dst[i] = e^(x[i]-shift); dst may be x.
func (s Set) Exps(dst, x []float32, shift float32) {
	dst = dst[:len(x)]
	if n := s.whole(len(x)); n > 0 {
		expsVector(&dst[0], &x[0], n, shift)
		dst, x = dst[n:], x[n:]
	}
	for i, v := range x {
		dst[i] = Exp(v - shift)
	}
}

// Softmax turns a row of scores into probabilities, in place: the largest is
// taken away first, so that no score is too large.
func (s Set) Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	s.Exps(x, x, s.Max(x))
	s.Scale(x, 1/s.Sum(x))
}

// SoftmaxBackward turns d, the gradient of a row of probabilities p, into the
// gradient of the scores that they were made from, times f; in place.
func (s Set) SoftmaxBackward(d, p []float32, f float32) {
	p = p[:len(d)]
	mean := s.Dot(p, d)
	if n := s.whole(len(d)); n > 0 {
		softmaxBackVector(&d[0], &p[0], n, mean, f)
		d, p = d[n:], p[n:]
	}
	for i, v := range p {
		d[i] = float32((d[i]-mean)*v) * f
	}
}

// Scale multiplies a row by f.
func (s Set) Scale(x []float32, f float32) {
	if n := s.whole(len(x)); n > 0 {
		scaleVector(&x[0], n, f)
		x = x[n:]
	}
	for i := range x {
		x[i] *= f
	}
}

// Add adds a row to dst.
func (s Set) Add(dst, x []float32) {
	dst = dst[:len(x)]
	if n := s.whole(len(x)); n > 0 {
		addVector(&dst[0], &x[0], n)
		dst, x = dst[n:], x[n:]
	}
	for i, v := range x {
		dst[i] += v
	}
}

// InverseRMS is 1/√(mean of squares + epsilon).
func (s Set) InverseRMS(x []float32, epsilon float32) float32 {
	mean := s.Dot(x, x) / float32(len(x))
	return 1 / float32(math.Sqrt(float64(mean+epsilon)))
}

// ScaleBy sets dst[i] = x[i]·f·gain[i].
func (s Set) ScaleBy(dst, x, gain []float32, f float32) {
	dst, gain = dst[:len(x)], gain[:len(x)]
	if n := s.whole(len(x)); n > 0 {
		scaleByVector(&dst[0], &x[0], &gain[0], n, f)
		dst, x, gain = dst[n:], x[n:], gain[n:]
	}
	for i, v := range x {
		dst[i] = float32(v*f) * gain[i]
	}
}

// NormBackward adds to dx the gradient of x in y = x·f·gain, f = InverseRMS(x);
// d is the gradient of y. share becomes what this row adds to the gradient of
// the gain, d·x·f.
func (s Set) NormBackward(dx, share, d, x, gain []float32, f float32) {
	n := len(d)
	dx, share, x, gain = dx[:n], share[:n], x[:n], gain[:n]
	s.ScaleBy(share, x, d, f)
	mean := s.Dot(share, gain) / float32(n)
	if n := s.whole(n); n > 0 {
		normBackVector(&dx[0], &d[0], &x[0], &gain[0], n, f, mean)
		dx, d, x, gain = dx[n:], d[n:], x[n:], gain[n:]
	}
	for i, v := range d {
		dx[i] += float32(f * (float32(v*gain[i]) - float32(float32(x[i]*f)*mean)))
	}
}

// SwiGLU sets dst[i] = gate[i]·sigmoid(gate[i])·up[i].
func (s Set) SwiGLU(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	if n := s.whole(len(gate)); n > 0 {
		swigluVector(&dst[0], &gate[0], &up[0], n)
		dst, gate, up = dst[n:], gate[n:], up[n:]
	}
	for i, g := range gate {
		dst[i] = float32(g*Sigmoid(g)) * up[i]
	}
}

// SwiGLUBackward sets dGate and dUp, the gradients of gate and up, from d, that
// of SwiGLU's result.
func (s Set) SwiGLUBackward(dGate, dUp, gate, up, d []float32) {
	n := len(gate)
	dGate, dUp, up, d = dGate[:n], dUp[:n], up[:n], d[:n]
	if n := s.whole(n); n > 0 {
		swigluBackVector(&dGate[0], &dUp[0], &gate[0], &up[0], &d[0], n)
		dGate, dUp, gate, up, d = dGate[n:], dUp[n:], gate[n:], up[n:], d[n:]
	}
	for i, g := range gate {
		sg := Sigmoid(g)
		slope := sg * (1 + float32(g*(1-sg)))
		dGate[i] = float32(d[i]*up[i]) * slope
		dUp[i] = d[i] * float32(g*sg)
	}
}

// Rotate turns the pairs (x[i], x[i+h]) of one head by the angles whose cosines
// and sines are given, h = len(cos) = len(x)/2; backward turns them back.
func (s Set) Rotate(x, cos, sin []float32, backward bool) {
	h := len(cos)
	a, b, sin := x[:h], x[h:2*h], sin[:h]
	var sign uint32
	if backward {
		sign = 1 << 31
	}
	if n := s.whole(h); n > 0 {
		rotateVector(&a[0], &b[0], &cos[0], &sin[0], n, sign)
		a, b, cos, sin = a[n:], b[n:], cos[n:], sin[n:]
	}
	for i, c := range cos {
		n := math.Float32frombits(math.Float32bits(sin[i]) ^ sign)
		u, v := a[i], b[i]
		a[i] = float32(u*c) - float32(v*n)
		b[i] = float32(v*c) + float32(u*n)
	}
}
