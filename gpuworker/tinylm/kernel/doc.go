// Package kernel is the arithmetic of the tiny engine: products of float32
// matrices, the element-wise functions of a transformer, and the transcendental
// functions that these need. Inputs and results are slices of the caller.
//
// A result has the same bits on every processor, with or without vector
// instructions, with any number of threads, and however a matrix is cut into
// pieces. Three rules ensure this:
//
//   - One goroutine computes each output element as one sum, over its terms in
//     their order. Vector lanes hold different output elements, never parts of
//     one sum. (The sum of a whole row is defined as eight interleaved sums, see
//     Set.Sum.)
//   - A product is rounded before it is added. The conversion float32(a*b) keeps
//     the compiler from fusing the two operations, and the assembly uses no
//     fused instruction.
//   - exp, log, pow, sin and cos are implemented here, because those of package
//     math differ between architectures.
//
// The package knows nothing of models. It never reads a file, a clock or a
// random number, and never chooses an order of summation by the machine.
package kernel
