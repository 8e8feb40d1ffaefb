package kernel

import "math"

// Sum returns the sum of a row. It computes eight interleaved sums: lane i adds
// elements i, i+8, i+16, …. It then adds the lanes as
// ((0+4)+(2+6)) + ((1+5)+(3+7)). A vector of eight lanes adds in this order.
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

// Dot returns Σ x[i]·y[i], added in the order of Sum.
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

// Max returns the largest element of x, which must not be empty. If x contains a
// NaN, the result is an arbitrary element of x.
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

// Finite reports whether all elements are finite: neither infinite nor NaN.
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

// Softmax turns a row of scores into probabilities, in place. It subtracts the
// largest score first, so that no exponential overflows.
func (s Set) Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	s.Exps(x, x, s.Max(x))
	s.Scale(x, 1/s.Sum(x))
}

// SoftmaxBackward turns d, the gradient of the probabilities p, into the
// gradient of their scores times f, in place.
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

// Scale sets x[i] *= f.
func (s Set) Scale(x []float32, f float32) {
	if n := s.whole(len(x)); n > 0 {
		scaleVector(&x[0], n, f)
		x = x[n:]
	}
	for i := range x {
		x[i] *= f
	}
}

// Add sets dst[i] += x[i].
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

// InverseRMS returns 1/√(mean of squares + epsilon).
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

// NormBackward is the backward pass of y = x·f·gain, where f is InverseRMS(x)
// and d is the gradient of y. It adds the gradient of x to dx, and sets share to
// d·x·f, this row's share of the gradient of gain.
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

// SwiGLUBackward sets dGate and dUp, the gradients of gate and up, from d, the
// gradient of SwiGLU's result.
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

// Rotate rotates each pair (x[i], x[i+h]) of one head by the angle that has the
// cosine cos[i] and the sine sin[i], where h = len(cos) = len(x)/2. With
// backward, it rotates by the negative angle.
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

// Adam holds the factors of one step of Adam. They include the bias corrections
// and the learning rate. The assembly knows the order of the fields.
type Adam struct {
	Beta1, Rest1 float32 // first moment: m ← Beta1·m + Rest1·g; Rest1 is 1 − β1
	Beta2, Rest2 float32 // second moment: v ← Beta2·v + Rest2·g·g; Rest2 is 1 − β2
	Keep         float32 // factor of p: 1 − learning rate · weight decay
	Rate         float32 // factor of m: learning rate / (1 − β1^step)
	Root         float32 // factor of √v: 1/√(1 − β2^step)
	Epsilon      float32
}

// AdamStep updates the parameters p and the moments m and v from the gradients
// g: p ← Keep·p − Rate·m/(Root·√v + Epsilon), with the new m and v. All four
// slices have the length of p.
func (s Set) AdamStep(p, g, m, v []float32, f Adam) {
	n := len(p)
	g, m, v = g[:n], m[:n], v[:n]
	if n := s.whole(n); n > 0 {
		adamVector(&p[0], &g[0], &m[0], &v[0], n, &f)
		p, g, m, v = p[n:], g[n:], m[n:], v[n:]
	}
	for i, d := range g {
		m1 := float32(f.Beta1*m[i]) + float32(f.Rest1*d)
		v1 := float32(f.Beta2*v[i]) + float32(f.Rest2*float32(d*d))
		m[i], v[i] = m1, v1
		root := float32(math.Sqrt(float64(v1)))
		p[i] = float32(f.Keep*p[i]) - float32(f.Rate*m1)/(float32(f.Root*root)+f.Epsilon)
	}
}
