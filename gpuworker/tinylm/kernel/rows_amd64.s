#include "textflag.h"

// Element-wise functions and row sums with AVX2, eight floats at a time. Each
// function applies the operations of its scalar counterpart in row.go to every
// element, in the same order and without fused instructions. n is a multiple of
// 8. The Go declarations are in vector_amd64.go.

DATA exp<>+0(SB)/4, $0x42b20000  // 89
DATA exp<>+4(SB)/4, $0xc2d00000  // -104
DATA exp<>+8(SB)/4, $0x3fb8aa3b  // log2 e
DATA exp<>+12(SB)/4, $0x4b400000 // 1.5 · 2^23
DATA exp<>+16(SB)/4, $0x3f318000 // ln 2, high
DATA exp<>+20(SB)/4, $0xb95e8083 // ln 2, low
DATA exp<>+24(SB)/4, $0x39506967 // polynomial
DATA exp<>+28(SB)/4, $0x3ab743ce
DATA exp<>+32(SB)/4, $0x3c088908
DATA exp<>+36(SB)/4, $0x3d2aa9c1
DATA exp<>+40(SB)/4, $0x3e2aaaaa
DATA exp<>+44(SB)/4, $0x3f000000
DATA exp<>+48(SB)/4, $0x3f800000 // 1
DATA exp<>+52(SB)/4, $127
DATA exp<>+56(SB)/4, $0x80000000 // sign
GLOBL exp<>(SB), RODATA|NOPTR, $60

#define TERM(at) \
	VMULPS Y0, Y1, Y1; \
	VBROADCASTSS exp<>+at(SB), Y3; \
	VADDPS Y3, Y1, Y1

// EXP replaces Y0 by its exponential and overwrites Y1 to Y3.
#define EXP \
	VBROADCASTSS exp<>+0(SB), Y1; \
	VMINPS Y0, Y1, Y0; \
	VBROADCASTSS exp<>+4(SB), Y1; \
	VMAXPS Y0, Y1, Y0; \
	VBROADCASTSS exp<>+8(SB), Y1; \
	VMULPS Y1, Y0, Y1; \
	VBROADCASTSS exp<>+12(SB), Y3; \
	VADDPS Y3, Y1, Y1; \
	VPSUBD Y3, Y1, Y2; \
	VSUBPS Y3, Y1, Y1; \
	VBROADCASTSS exp<>+16(SB), Y3; \
	VMULPS Y3, Y1, Y3; \
	VSUBPS Y3, Y0, Y0; \
	VBROADCASTSS exp<>+20(SB), Y3; \
	VMULPS Y3, Y1, Y3; \
	VSUBPS Y3, Y0, Y0; \
	VBROADCASTSS exp<>+24(SB), Y1; \
	TERM(28); \
	TERM(32); \
	TERM(36); \
	TERM(40); \
	TERM(44); \
	VMULPS Y0, Y0, Y3; \
	VMULPS Y3, Y1, Y1; \
	VADDPS Y0, Y1, Y1; \
	VBROADCASTSS exp<>+48(SB), Y3; \
	VADDPS Y3, Y1, Y1; \
	VPSRAD $1, Y2, Y3; \
	VPSUBD Y3, Y2, Y2; \
	VPBROADCASTD exp<>+52(SB), Y0; \
	VPADDD Y0, Y3, Y3; \
	VPSLLD $23, Y3, Y3; \
	VPADDD Y0, Y2, Y2; \
	VPSLLD $23, Y2, Y2; \
	VMULPS Y3, Y1, Y1; \
	VMULPS Y2, Y1, Y0

// SIGMOID replaces Y0 by its logistic function and overwrites Y1 to Y3.
#define SIGMOID \
	VBROADCASTSS exp<>+56(SB), Y1; \
	VXORPS Y1, Y0, Y0; \
	EXP; \
	VBROADCASTSS exp<>+48(SB), Y1; \
	VADDPS Y0, Y1, Y0; \
	VDIVPS Y0, Y1, Y0

// func expsVector(dst, x *float32, n int, shift float32)
TEXT ·expsVector(SB), NOSPLIT, $0-28
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS shift+24(FP), Y4
loop:
	VMOVUPS (SI), Y0
	VSUBPS Y4, Y0, Y0
	EXP
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func swigluVector(dst, gate, up *float32, n int)
TEXT ·swigluVector(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ gate+8(FP), SI
	MOVQ up+16(FP), DX
	MOVQ n+24(FP), CX
loop:
	VMOVUPS (SI), Y4
	VMOVAPS Y4, Y0
	SIGMOID
	VMULPS Y0, Y4, Y0
	VMULPS (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func swigluBackVector(dGate, dUp, gate, up, d *float32, n int)
TEXT ·swigluBackVector(SB), NOSPLIT, $0-48
	MOVQ dGate+0(FP), DI
	MOVQ dUp+8(FP), R8
	MOVQ gate+16(FP), SI
	MOVQ up+24(FP), DX
	MOVQ d+32(FP), AX
	MOVQ n+40(FP), CX
loop:
	VMOVUPS (SI), Y4
	VMOVAPS Y4, Y0
	SIGMOID
	VBROADCASTSS exp<>+48(SB), Y1
	VSUBPS Y0, Y1, Y2   // 1 - s
	VMULPS Y2, Y4, Y2
	VADDPS Y2, Y1, Y2   // 1 + g·(1 - s)
	VMULPS Y2, Y0, Y2   // slope
	VMOVUPS (AX), Y3
	VMULPS Y0, Y4, Y0   // g·s
	VMULPS Y0, Y3, Y0
	VMULPS (DX), Y3, Y3 // d·up
	VMULPS Y2, Y3, Y3
	VMOVUPS Y3, (DI)
	VMOVUPS Y0, (R8)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, AX
	ADDQ $32, DI
	ADDQ $32, R8
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func sumVector(lanes *[8]float32, x *float32, n int)
TEXT ·sumVector(SB), NOSPLIT, $0-24
	MOVQ lanes+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0
loop:
	VADDPS (SI), Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// func dotVector(lanes *[8]float32, x, y *float32, n int)
TEXT ·dotVector(SB), NOSPLIT, $0-32
	MOVQ lanes+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ y+16(FP), DX
	MOVQ n+24(FP), CX
	VXORPS Y0, Y0, Y0
loop:
	VMOVUPS (SI), Y1
	VMULPS (DX), Y1, Y1
	VADDPS Y1, Y0, Y0
	ADDQ $32, SI
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ loop
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// func maxVector(lanes *[8]float32, x *float32, n int)
TEXT ·maxVector(SB), NOSPLIT, $0-24
	MOVQ lanes+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VMOVUPS (SI), Y0
loop:
	VMAXPS (SI), Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// func finiteVector(x *float32, n int) uint32
// returns the union of the bits of x-x, which is zero only if all are finite.
TEXT ·finiteVector(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VXORPS Y0, Y0, Y0
loop:
	VMOVUPS (SI), Y1
	VSUBPS Y1, Y1, Y1
	VORPS Y1, Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VXORPS Y2, Y2, Y2
	VPCMPEQD Y2, Y0, Y0
	VMOVMSKPS Y0, AX
	XORL $0xff, AX
	MOVL AX, ret+16(FP)
	VZEROUPPER
	RET

// func scaleVector(x *float32, n int, f float32)
TEXT ·scaleVector(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VBROADCASTSS f+16(FP), Y4
loop:
	VMULPS (SI), Y4, Y0
	VMOVUPS Y0, (SI)
	ADDQ $32, SI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func addVector(dst, x *float32, n int)
TEXT ·addVector(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VMOVUPS (DI), Y0
	VADDPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func scaleByVector(dst, x, gain *float32, n int, f float32)
TEXT ·scaleByVector(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ gain+16(FP), DX
	MOVQ n+24(FP), CX
	VBROADCASTSS f+32(FP), Y4
loop:
	VMULPS (SI), Y4, Y0
	VMULPS (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func softmaxBackVector(d, p *float32, n int, mean, f float32)
TEXT ·softmaxBackVector(SB), NOSPLIT, $0-32
	MOVQ d+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS mean+24(FP), Y4
	VBROADCASTSS f+28(FP), Y5
loop:
	VMOVUPS (DI), Y0
	VSUBPS Y4, Y0, Y0
	VMULPS (SI), Y0, Y0
	VMULPS Y5, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func normBackVector(dx, d, x, gain *float32, n int, f, mean float32)
TEXT ·normBackVector(SB), NOSPLIT, $0-48
	MOVQ dx+0(FP), DI
	MOVQ d+8(FP), SI
	MOVQ x+16(FP), DX
	MOVQ gain+24(FP), AX
	MOVQ n+32(FP), CX
	VBROADCASTSS f+40(FP), Y4
	VBROADCASTSS mean+44(FP), Y5
loop:
	VMOVUPS (SI), Y0
	VMULPS (AX), Y0, Y0
	VMULPS (DX), Y4, Y1
	VMULPS Y5, Y1, Y1
	VSUBPS Y1, Y0, Y0
	VMULPS Y4, Y0, Y0
	VADDPS (DI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, AX
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func rotateVector(a, b, cos, sin *float32, n int, sign uint32)
TEXT ·rotateVector(SB), NOSPLIT, $0-44
	MOVQ a+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ cos+16(FP), DX
	MOVQ sin+24(FP), AX
	MOVQ n+32(FP), CX
	VBROADCASTSS sign+40(FP), Y4
loop:
	VMOVUPS (DI), Y0
	VMOVUPS (SI), Y1
	VMOVUPS (DX), Y2
	VXORPS (AX), Y4, Y3
	VMULPS Y2, Y0, Y5
	VMULPS Y3, Y1, Y6
	VSUBPS Y6, Y5, Y5
	VMULPS Y2, Y1, Y6
	VMULPS Y3, Y0, Y7
	VADDPS Y7, Y6, Y6
	VMOVUPS Y5, (DI)
	VMOVUPS Y6, (SI)
	ADDQ $32, DI
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, AX
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func adamVector(p, d, m, v *float32, n int, f *Adam)
TEXT ·adamVector(SB), NOSPLIT, $0-48
	MOVQ p+0(FP), DI
	MOVQ d+8(FP), SI
	MOVQ m+16(FP), DX
	MOVQ v+24(FP), AX
	MOVQ n+32(FP), CX
	MOVQ f+40(FP), BX
	VBROADCASTSS 0(BX), Y8   // Beta1
	VBROADCASTSS 4(BX), Y9   // Rest1
	VBROADCASTSS 8(BX), Y10  // Beta2
	VBROADCASTSS 12(BX), Y11 // Rest2
	VBROADCASTSS 16(BX), Y12 // Keep
	VBROADCASTSS 20(BX), Y13 // Rate
	VBROADCASTSS 24(BX), Y14 // Root
	VBROADCASTSS 28(BX), Y15 // Epsilon
loop:
	VMOVUPS (SI), Y0
	VMULPS (DX), Y8, Y1
	VMULPS Y0, Y9, Y2
	VADDPS Y2, Y1, Y1
	VMOVUPS Y1, (DX)
	VMULPS Y0, Y0, Y0
	VMULPS Y0, Y11, Y0
	VMULPS (AX), Y10, Y2
	VADDPS Y0, Y2, Y2
	VMOVUPS Y2, (AX)
	VSQRTPS Y2, Y2
	VMULPS Y2, Y14, Y2
	VADDPS Y15, Y2, Y2
	VMULPS Y1, Y13, Y1
	VDIVPS Y2, Y1, Y1
	VMULPS (DI), Y12, Y0
	VSUBPS Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DX
	ADDQ $32, AX
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// func copyPanelVector(dst, src *float32, rows, stride int)
// copies rows of 16 floats that are stride bytes apart.
TEXT ·copyPanelVector(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ rows+16(FP), CX
	MOVQ stride+24(FP), DX
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ DX, SI
	ADDQ $64, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// func transposePanelVector(dst, src *float32, blocks, stride int)
// transposes src, 16 rows of 8·blocks floats, stride bytes apart, into dst,
// 8·blocks rows of 16 floats.
TEXT ·transposePanelVector(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ stride+24(FP), R8
	LEAQ (R8)(R8*2), R9
loop:
	MOVQ SI, AX
	MOVQ DI, DX
	MOVQ $2, BX
half:
	LEAQ (AX)(R8*4), R10
	VMOVUPS (AX), Y0
	VMOVUPS (AX)(R8*1), Y1
	VMOVUPS (AX)(R8*2), Y2
	VMOVUPS (AX)(R9*1), Y3
	VMOVUPS (R10), Y4
	VMOVUPS (R10)(R8*1), Y5
	VMOVUPS (R10)(R8*2), Y6
	VMOVUPS (R10)(R9*1), Y7
	VUNPCKLPS Y1, Y0, Y8
	VUNPCKHPS Y1, Y0, Y9
	VUNPCKLPS Y3, Y2, Y10
	VUNPCKHPS Y3, Y2, Y11
	VUNPCKLPS Y5, Y4, Y12
	VUNPCKHPS Y5, Y4, Y13
	VUNPCKLPS Y7, Y6, Y14
	VUNPCKHPS Y7, Y6, Y15
	VSHUFPS $0x44, Y10, Y8, Y0
	VSHUFPS $0xee, Y10, Y8, Y1
	VSHUFPS $0x44, Y11, Y9, Y2
	VSHUFPS $0xee, Y11, Y9, Y3
	VSHUFPS $0x44, Y14, Y12, Y4
	VSHUFPS $0xee, Y14, Y12, Y5
	VSHUFPS $0x44, Y15, Y13, Y6
	VSHUFPS $0xee, Y15, Y13, Y7
	VPERM2F128 $0x20, Y4, Y0, Y8
	VPERM2F128 $0x20, Y5, Y1, Y9
	VPERM2F128 $0x20, Y6, Y2, Y10
	VPERM2F128 $0x20, Y7, Y3, Y11
	VPERM2F128 $0x31, Y4, Y0, Y12
	VPERM2F128 $0x31, Y5, Y1, Y13
	VPERM2F128 $0x31, Y6, Y2, Y14
	VPERM2F128 $0x31, Y7, Y3, Y15
	VMOVUPS Y8, (DX)
	VMOVUPS Y9, 64(DX)
	VMOVUPS Y10, 128(DX)
	VMOVUPS Y11, 192(DX)
	VMOVUPS Y12, 256(DX)
	VMOVUPS Y13, 320(DX)
	VMOVUPS Y14, 384(DX)
	VMOVUPS Y15, 448(DX)
	LEAQ (AX)(R8*8), AX
	ADDQ $32, DX
	DECQ BX
	JNZ half
	ADDQ $32, SI
	ADDQ $512, DI
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET
