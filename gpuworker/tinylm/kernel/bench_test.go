package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkProduct measures the products that dominate training: about 128
// tokens at the widths of the shipped model. It reports multiplications per
// nanosecond.
func BenchmarkProduct(b *testing.B) {
	shapes := []struct{ m, depth, n int }{
		{126, 128, 352}, {126, 352, 128}, {66, 128, 128}, {1, 128, 352}, {1, 352, 128},
	}
	for _, s := range []Set{Best(), Scalar()} {
		for _, c := range shapes {
			b.Run(fmt.Sprintf("%v/%dx%dx%d", s, c.m, c.depth, c.n), func(b *testing.B) {
				w := NewMatrix(c.depth, c.n)
				Best().PackRows(w, numbers(c.depth*c.n, 1), c.depth, c.n, c.n)
				a, out := numbers(c.m*c.depth, 2), make([]float32, c.m*c.n)
				for b.Loop() {
					s.Product(out, c.n, Rows{a, c.depth, 1}, w, c.m, c.depth, c.n, false)
				}
				b.ReportMetric(float64(c.m*c.depth*c.n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "mul/ns")
			})
		}
	}
}
