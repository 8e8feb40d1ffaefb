// Package kernel is the arithmetic of the tiny engine: products of float32
// matrices, the element-wise functions of a transformer, and the few
// transcendental functions they need.
//
// Its promise is that a result has the same bits everywhere: on any processor,
// with vector instructions or without, with any number of threads, and however
// a matrix is cut into pieces. What makes it so:
//
//   - each output element is one sum, taken over its terms in their order, by
//     one goroutine; vectors lie across output elements, never across a sum
//     (sums of a whole row are defined as eight interleaved sums, see Sum);
//   - a product is rounded before it is added: float32(a*b) keeps the compiler
//     from fusing the two, and the assembly has no fused instruction;
//   - exp, log, pow, sin and cos are its own: those of package math differ
//     between architectures.
//
// It knows nothing of models, and will never read a file, a clock or a random
// number, or choose an order of summation by the machine it runs on.
package kernel
