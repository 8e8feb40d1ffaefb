package kernel

// Set is one implementation of the package's functions. All sets compute the
// same bits; they differ only in speed. The zero value is Scalar.
type Set struct {
	vector bool
}

// Best returns the fastest set that this processor supports.
func Best() Set { return Set{vector: haveVector()} }

// Scalar returns the set without assembly. It runs on every processor, and tests
// compare the other sets with it.
func Scalar() Set { return Set{} }

// String returns the set's name in logs and benchmarks: "avx2" or "scalar".
func (s Set) String() string {
	if s.vector {
		return "avx2"
	}
	return "scalar"
}

// whole returns how many of n elements the vector functions process: n rounded
// down to a multiple of 8, or 0 without vector instructions.
func (s Set) whole(n int) int {
	if !s.vector {
		return 0
	}
	return n &^ 7
}
