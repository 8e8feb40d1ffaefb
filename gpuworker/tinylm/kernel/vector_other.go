//go:build !amd64

package kernel

func haveVector() bool { return false }

// noVector is the panic of the functions below. Set.vector is false on this
// processor, so nothing calls them.
const noVector = "kernel: this processor has no vector functions"

func productVector([]float32, int, Rows, Matrix, int, int, int, bool) { panic(noVector) }
func expsVector(_, _ *float32, _ int, _ float32)                      { panic(noVector) }
func swigluVector(_, _, _ *float32, _ int)                            { panic(noVector) }
func swigluBackVector(_, _, _, _, _ *float32, _ int)                  { panic(noVector) }
func sumVector(_ *[8]float32, _ *float32, _ int)                      { panic(noVector) }
func dotVector(_ *[8]float32, _, _ *float32, _ int)                   { panic(noVector) }
func maxVector(_ *[8]float32, _ *float32, _ int)                      { panic(noVector) }
func finiteVector(_ *float32, _ int) uint32                           { panic(noVector) }
func scaleVector(_ *float32, _ int, _ float32)                        { panic(noVector) }
func addVector(_, _ *float32, _ int)                                  { panic(noVector) }
func scaleByVector(_, _, _ *float32, _ int, _ float32)                { panic(noVector) }
func softmaxBackVector(_, _ *float32, _ int, _, _ float32)            { panic(noVector) }
func normBackVector(_, _, _, _ *float32, _ int, _, _ float32)         { panic(noVector) }
func rotateVector(_, _, _, _ *float32, _ int, _ uint32)               { panic(noVector) }
func adamVector(_, _, _, _ *float32, _ int, _ *Adam)                  { panic(noVector) }
func copyPanelVector(_, _ *float32, _, _ int)                         { panic(noVector) }
func transposePanelVector(_, _ *float32, _, _ int)                    { panic(noVector) }
