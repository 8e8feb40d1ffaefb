package kernel

// Set is a set of implementations of the same functions. All sets compute the
// same bits; they differ in speed alone.
type Set struct {
	vector bool
}

// Best is the fastest set that this processor can run.
func Best() Set { return Set{vector: haveVector()} }

// Scalar is the set without assembly: what every processor can run, and what
// the others are compared with.
func Scalar() Set { return Set{} }

// String names the set as logs and benchmarks show it.
func (s Set) String() string {
	if s.vector {
		return "avx2"
	}
	return "scalar"
}
