#include "textflag.h"

// blake3's compression of two nodes at once with AVX2. The low half of each
// register belongs to one node, the high half to the other. A half holds one
// row of four words of the state, so that a round is four steps on whole rows,
// as in the reference's code for SSE4.1.

// IV's first four words, the state's third row.
DATA iv<>+0(SB)/4, $0x6a09e667
DATA iv<>+4(SB)/4, $0xbb67ae85
DATA iv<>+8(SB)/4, $0x3c6ef372
DATA iv<>+12(SB)/4, $0xa54ff53a
GLOBL iv<>(SB), RODATA|NOPTR, $16

// The order of a word's bytes, rotated to the right by 16 and by 8 bits.
DATA rot16<>+0(SB)/8, $0x0504070601000302
DATA rot16<>+8(SB)/8, $0x0d0c0f0e09080b0a
GLOBL rot16<>(SB), RODATA|NOPTR, $16
DATA rot8<>+0(SB)/8, $0x0407060500030201
DATA rot8<>+8(SB)/8, $0x0c0f0e0d080b0a09
GLOBL rot8<>(SB), RODATA|NOPTR, $16

// A mask for a node's tail after its first block: it clears the flag that marks
// the first block, bit 0 of the last word.
DATA begun<>+0(SB)/8, $0xffffffffffffffff
DATA begun<>+8(SB)/8, $0xfffffffeffffffff
GLOBL begun<>(SB), RODATA|NOPTR, $16

// The rows are Y0 to Y3, the message Y4 to Y7, the next round's Y8 to Y11.

// G is half of a step: m is the message's part, rotate rotates the fourth row,
// and the second row is rotated by right = 32 − left bits.
#define G(m, rotate, right, left) \
	VPADDD m, Y0, Y0; \
	VPADDD Y1, Y0, Y0; \
	VPXOR Y0, Y3, Y3; \
	VPSHUFB rotate, Y3, Y3; \
	VPADDD Y3, Y2, Y2; \
	VPXOR Y2, Y1, Y1; \
	VPSRLD $right, Y1, Y12; \
	VPSLLD $left, Y1, Y1; \
	VPOR Y12, Y1, Y1

#define G1(m) G(m, Y13, 12, 20)
#define G2(m) G(m, Y14, 7, 25)

// Diagonals become columns: all rows but the second are rotated, because the
// next step waits for the second.
#define DIAGONAL \
	VPSHUFD $0x93, Y0, Y0; \
	VPSHUFD $0x4e, Y3, Y3; \
	VPSHUFD $0x39, Y2, Y2

#define COLUMN \
	VPSHUFD $0x39, Y0, Y0; \
	VPSHUFD $0x4e, Y3, Y3; \
	VPSHUFD $0x93, Y2, Y2

// ROUND is any round after the first: it permutes the message of the round
// before, m0 to m3, into n0 to n3.
#define ROUND(m0, m1, m2, m3, n0, n1, n2, n3) \
	VSHUFPS $0xd6, m1, m0, n0; \
	VPSHUFD $0x39, n0, n0; \
	G1(n0); \
	VSHUFPS $0xfa, m3, m2, n1; \
	VPSHUFD $0x0f, m0, Y12; \
	VPBLENDD $0xaa, n1, Y12, n1; \
	G2(n1); \
	DIAGONAL; \
	VPUNPCKLQDQ m1, m3, n2; \
	VPBLENDD $0x88, m2, n2, n2; \
	VPSHUFD $0x78, n2, n2; \
	G1(n2); \
	VPUNPCKHDQ m3, m1, n3; \
	VPUNPCKLDQ n3, m2, n3; \
	VPSHUFD $0x1e, n3, n3; \
	G2(n3); \
	COLUMN

// func compressPair(p *pair, n int)
TEXT ·compressPair(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ 128(DI), SI // the nodes' blocks
	MOVQ 136(DI), DX
	VBROADCASTI128 rot16<>(SB), Y13
	VBROADCASTI128 rot8<>(SB), Y14
	VMOVDQU (DI), Y0
	VMOVDQU 32(DI), Y1
	VMOVDQU 64(DI), Y15 // tail
block:
	CMPQ CX, $1
	JNE more
	VPXOR 96(DI), Y15, Y15 // the last block has another tail
more:
	VMOVDQA Y15, Y3
	VBROADCASTI128 iv<>(SB), Y2
	VMOVDQU (SI), X4
	VMOVDQU 16(SI), X5
	VMOVDQU 32(SI), X6
	VMOVDQU 48(SI), X7
	VINSERTI128 $1, (DX), Y4, Y4
	VINSERTI128 $1, 16(DX), Y5, Y5
	VINSERTI128 $1, 32(DX), Y6, Y6
	VINSERTI128 $1, 48(DX), Y7, Y7

	// The first round takes the message as it is.
	VSHUFPS $0x88, Y5, Y4, Y8
	G1(Y8)
	VSHUFPS $0xdd, Y5, Y4, Y9
	G2(Y9)
	DIAGONAL
	VSHUFPS $0x88, Y7, Y6, Y10
	VPSHUFD $0x93, Y10, Y10
	G1(Y10)
	VSHUFPS $0xdd, Y7, Y6, Y11
	VPSHUFD $0x93, Y11, Y11
	G2(Y11)
	COLUMN

	ROUND(Y8, Y9, Y10, Y11, Y4, Y5, Y6, Y7)
	ROUND(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11)
	ROUND(Y8, Y9, Y10, Y11, Y4, Y5, Y6, Y7)
	ROUND(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11)
	ROUND(Y8, Y9, Y10, Y11, Y4, Y5, Y6, Y7)
	ROUND(Y4, Y5, Y6, Y7, Y8, Y9, Y10, Y11)

	VPXOR Y2, Y0, Y0
	VPXOR Y3, Y1, Y1
	VBROADCASTI128 begun<>(SB), Y12
	VPAND Y12, Y15, Y15
	ADDQ $64, SI
	ADDQ $64, DX
	DECQ CX
	JNZ block
	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VZEROUPPER
	RET
