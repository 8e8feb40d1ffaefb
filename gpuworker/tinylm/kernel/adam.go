package kernel

import "math"

// Adam holds the factors of one step of Adam, all corrections applied.
type Adam struct {
	Beta1, Rest1 float32 // first moment: m ← Beta1·m + Rest1·g
	Beta2, Rest2 float32 // second: v ← Beta2·v + Rest2·g·g
	Keep         float32 // what weight decay leaves
	Rate         float32 // of the step, times m
	Root         float32 // times √v
	Epsilon      float32
}

// AdamStep changes parameters p and moments m, v by gradients g:
// p ← Keep·p − Rate·m/(Root·√v + Epsilon).
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
