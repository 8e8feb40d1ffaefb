package kernel

import "golang.org/x/sys/cpu"

func haveVector() bool { return cpu.X86.HasAVX2 }

// The functions below process n elements; n is a positive multiple of 8. They
// are implemented in rows_amd64.s, and their scalar counterparts in row.go.

//go:noescape
func expsVector(dst, x *float32, n int, shift float32)

//go:noescape
func swigluVector(dst, gate, up *float32, n int)

//go:noescape
func swigluBackVector(dGate, dUp, gate, up, d *float32, n int)

//go:noescape
func sumVector(lanes *[8]float32, x *float32, n int)

//go:noescape
func dotVector(lanes *[8]float32, x, y *float32, n int)

//go:noescape
func maxVector(lanes *[8]float32, x *float32, n int)

//go:noescape
func finiteVector(x *float32, n int) uint32

//go:noescape
func scaleVector(x *float32, n int, f float32)

//go:noescape
func addVector(dst, x *float32, n int)

//go:noescape
func scaleByVector(dst, x, gain *float32, n int, f float32)

//go:noescape
func softmaxBackVector(d, p *float32, n int, mean, f float32)

//go:noescape
func normBackVector(dx, d, x, gain *float32, n int, f, mean float32)

//go:noescape
func rotateVector(a, b, cos, sin *float32, n int, sign uint32)

//go:noescape
func adamVector(p, d, m, v *float32, n int, f *Adam)

// copyPanelVector copies rows of Lanes floats, stride bytes apart.
//
//go:noescape
func copyPanelVector(dst, src *float32, rows, stride int)

// transposePanelVector transposes Lanes rows of 8·blocks floats, stride bytes
// apart, into 8·blocks rows of Lanes floats.
//
//go:noescape
func transposePanelVector(dst, src *float32, blocks, stride int)
