package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// The tests of this file compare the best set of this machine with the scalar
// one, bit by bit. On a machine without AVX2 both are the scalar set.

// numbers returns a row of n values of many magnitudes and both signs.
func numbers(n, seed int) []float32 {
	x := make([]float32, n)
	state := uint32(seed)*2654435761 + 1
	for i := range x {
		state = state*1664525 + 1013904223
		x[i] = float32(int32(state)) / (1 << 31) * float32(int(1)<<(state>>5%7))
	}
	return x
}

var lengths = []int{1, 2, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 64, 100, 129}

func TestProductHasTheSameBitsInAllSets(t *testing.T) {
	t.Parallel()
	for _, m := range []int{1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 20} {
		for _, n := range []int{1, 5, 16, 17, 31, 32, 48, 50, 64, 80, 96, 113} {
			for _, depth := range []int{1, 2, 3, 40} {
				b := NewMatrix(depth, n)
				Best().PackRows(b, numbers(depth*n, 1), depth, n, n)
				a := numbers(m*depth, 2)
				for _, add := range []bool{false, true} {
					for _, left := range []Rows{{a, depth, 1}, {a, 1, m}} {
						got, want := numbers(m*(n+3), 3), numbers(m*(n+3), 3)
						Best().Product(got, n+3, left, b, m, depth, n, add)
						Scalar().Product(want, n+3, left, b, m, depth, n, add)
						same(t, fmt.Sprintf("%dx%dx%d add=%v %v", m, depth, n, add, left.Row), got, want)
					}
				}
			}
		}
	}
}

func TestProductAddsItsTermsInOrder(t *testing.T) {
	t.Parallel()
	const m, depth, n = 7, 33, 21
	a, w := numbers(m*depth, 1), numbers(n*depth, 2)
	b := NewMatrix(depth, n)
	Best().PackTransposed(b, w, n, depth, depth)
	for _, s := range []Set{Best(), Scalar()} {
		c := make([]float32, m*n)
		s.Product(c, n, Rows{a, depth, 1}, b, m, depth, n, false)
		inParts := make([]float32, m*n)
		s.Product(inParts, n, Rows{a, depth, 1}, b, m, 20, n, false)
		rest := Matrix{b.Data[20*Lanes:], b.Step, b.Panel}
		s.Product(inParts, n, Rows{a[20:], depth, 1}, rest, m, depth-20, n, true)
		same(t, "a sum in two parts", inParts, c)
		for r := range m {
			for j := range n {
				var sum float32
				for k := range depth {
					sum += float32(a[r*depth+k] * w[j*depth+k])
				}
				if c[r*n+j] != sum {
					t.Fatalf("%v: (%d, %d) is %v, want %v", s, r, j, c[r*n+j], sum)
				}
			}
		}
		s.Product(c, n, Rows{}, b, m, 0, n, false)
		if slices.ContainsFunc(c, func(v float32) bool { return v != 0 }) {
			t.Errorf("%v: a product without terms is not zero", s)
		}
	}
}

func TestPackingIsTheSameInAllSets(t *testing.T) {
	t.Parallel()
	for _, k := range lengths {
		for _, n := range lengths {
			w := numbers(k*(n+2), 1)
			got, want := NewMatrix(k, n), NewMatrix(k, n)
			Best().PackRows(got, w, k, n, n+2)
			Scalar().PackRows(want, w, k, n, n+2)
			same(t, fmt.Sprintf("%d rows of %d", k, n), got.Data, want.Data)
			got, want = NewMatrix(n, k), NewMatrix(n, k)
			Best().PackTransposed(got, w, k, n, n+2)
			Scalar().PackTransposed(want, w, k, n, n+2)
			same(t, fmt.Sprintf("%d rows of %d transposed", k, n), got.Data, want.Data)
		}
	}
}

func TestRowFunctionsHaveTheSameBitsInAllSets(t *testing.T) {
	t.Parallel()
	// Each function takes three rows and returns its results as one row.
	functions := map[string]func(s Set, x, y, z []float32) []float32{
		"sum":     func(s Set, x, y, z []float32) []float32 { return []float32{s.Sum(x)} },
		"dot":     func(s Set, x, y, z []float32) []float32 { return []float32{s.Dot(x, y)} },
		"max":     func(s Set, x, y, z []float32) []float32 { return []float32{s.Max(x)} },
		"exps":    func(s Set, x, y, z []float32) []float32 { s.Exps(y, x, 0.7); return y },
		"softmax": func(s Set, x, y, z []float32) []float32 { s.Softmax(x); return x },
		"softmax backward": func(s Set, x, y, z []float32) []float32 {
			s.SoftmaxBackward(x, y, 0.125)
			return x
		},
		"scale":       func(s Set, x, y, z []float32) []float32 { s.Scale(x, 1.7); return x },
		"add":         func(s Set, x, y, z []float32) []float32 { s.Add(x, y); return x },
		"inverse rms": func(s Set, x, y, z []float32) []float32 { return []float32{s.InverseRMS(x, 1e-5)} },
		"scale by":    func(s Set, x, y, z []float32) []float32 { s.ScaleBy(x, y, z, 0.3); return x },
		"norm backward": func(s Set, x, y, z []float32) []float32 {
			share := make([]float32, len(x))
			s.NormBackward(x, share, y, z, numbers(len(x), 9), 0.3)
			return slices.Concat(x, share)
		},
		"swiglu": func(s Set, x, y, z []float32) []float32 { s.SwiGLU(x, y, z); return x },
		"swiglu backward": func(s Set, x, y, z []float32) []float32 {
			up := make([]float32, len(x))
			s.SwiGLUBackward(x, up, y, z, numbers(len(x), 9))
			return slices.Concat(x, up)
		},
		"rotate": func(s Set, x, y, z []float32) []float32 {
			pair := slices.Concat(x, y)
			s.Rotate(pair, z, numbers(len(x), 9), false)
			s.Rotate(pair, z, numbers(len(x), 8), true)
			return pair
		},
		"adam": func(s Set, x, y, z []float32) []float32 {
			v := numbers(len(x), 9)
			for i := range v {
				v[i] = max(v[i], -v[i])
			}
			s.AdamStep(x, y, z, v, Adam{0.9, 0.1, 0.99, 0.01, 0.999, 0.01, 1.5, 1e-8})
			return slices.Concat(x, z, v)
		},
	}
	for name, f := range functions {
		for _, n := range lengths {
			got := f(Best(), numbers(n, 1), numbers(n, 2), numbers(n, 3))
			want := f(Scalar(), numbers(n, 1), numbers(n, 2), numbers(n, 3))
			same(t, fmt.Sprintf("%s of %d", name, n), got, want)
		}
	}
}

func TestFiniteFindsInfinityAndNaNAnywhere(t *testing.T) {
	t.Parallel()
	for _, s := range []Set{Best(), Scalar()} {
		for _, n := range lengths {
			x := numbers(n, 1)
			x[n/2] = math.MaxFloat32
			if !s.Finite(x) {
				t.Errorf("%v: Finite is false for %d finite numbers", s, n)
			}
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				for i := range x {
					was := x[i]
					x[i] = float32(bad)
					if s.Finite(x) {
						t.Errorf("%v: Finite is true with %v at %d of %d", s, bad, i, n)
					}
					x[i] = was
				}
			}
		}
	}
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v (%#x), want %v (%#x)",
				what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}
