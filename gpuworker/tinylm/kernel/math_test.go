package kernel

import (
	"math"
	"testing"
)

// ulps returns the distance of got from want in units of the last place of a
// float32 at want.
func ulps(got float32, want float64) float64 {
	near := float32(want)
	unit := float64(math.Nextafter32(near, float32(math.Inf(1)))) - float64(near)
	return math.Abs(float64(got)-want) / unit
}

func TestExpIsWithinTwoUnitsInTheLastPlace(t *testing.T) {
	t.Parallel()
	worst := 0.0
	check := func(x float32) {
		want := math.Exp(float64(x))
		if u := ulps(Exp(x), want); u > worst {
			worst = u
			if worst > 2 {
				t.Fatalf("exp(%v) is %v, want %v: the error is %v units in the last place", x, Exp(x), want, u)
			}
		}
	}
	for x := float32(-103.97); x < 88.72; x += 0.00137 {
		check(x)
	}
	for x := float32(1e-30); x < 1; x *= 1.01 {
		check(x)
		check(-x)
	}
	t.Logf("greatest error: %.2f units in the last place", worst)
}

func TestExpAtTheEndsOfItsRange(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	x := []float32{0, float32(math.Copysign(0, -1)), 88.73, 89, 1e30, inf, -103.98, -104, -200, -inf, nan}
	want := []float32{1, 1, inf, inf, inf, inf, 0, 0, 0, 0, nan}
	for _, s := range []Set{Best(), Scalar()} {
		got := make([]float32, len(x)+5) // offsets move each value through vector lanes and tails
		for at := range 6 {
			row := append(make([]float32, at), x...)
			s.Exps(got[:len(row)], row, 0)
			for i := range x {
				if g := got[at+i]; g != want[i] && !(g != g && want[i] != want[i]) {
					t.Errorf("%v: exp(%v) is %v, want %v", s, x[i], g, want[i])
				}
			}
		}
	}
}

func TestSoftmaxOfExtremeScores(t *testing.T) {
	t.Parallel()
	for _, s := range []Set{Best(), Scalar()} {
		x := []float32{3e38, -3e38, 3e38, 0, 1, 2, 3, 4, -1e9, 3e38}
		s.Softmax(x)
		third := float32(1) / 3
		for i, want := range []float32{third, 0, third, 0, 0, 0, 0, 0, 0, third} {
			if x[i] != want {
				t.Errorf("%v: probability %d is %v, want %v", s, i, x[i], want)
			}
		}
	}
}

func TestSigmoidAndSwiGLUFarFromZero(t *testing.T) {
	t.Parallel()
	for x, want := range map[float32]float32{-200: 0, -80: 1.8048513e-35, 0: 0.5, 17: 1, 200: 1} {
		if got := Sigmoid(x); got != want {
			t.Errorf("sigmoid(%v) is %v, want %v", x, got, want)
		}
	}
}

func TestFloat64FunctionsAgreeWithPackageMath(t *testing.T) {
	t.Parallel()
	near := func(name string, x, got, want float64) {
		if math.Abs(got-want) > 1e-15*max(1, math.Abs(want)) && got != want {
			t.Fatalf("%s(%v) is %v, want %v", name, x, got, want)
		}
	}
	for x := -700.0; x < 700; x += 0.317 {
		near("exp", x, Exp64(x)/math.Exp(x), 1)
	}
	for x := 1e-300; x < 1e300; x *= 1.37 {
		near("log", x, Log64(x), math.Log(x))
	}
	for x := 0.5; x < 2; x += 0.001 {
		near("log", x, Log64(x), math.Log(x))
	}
	for x := -1000.0; x < 70000; x += 3.7 {
		sin, cos := SinCos64(x)
		near("sin", x, sin, math.Sin(x))
		near("cos", x, cos, math.Cos(x))
	}
	for x := -3.0; x < 3; x += 0.1 {
		near("pow", x, (Pow64(10000, x)/math.Pow(10000, x)-1)/10, 0) // the error grows with |ln|
	}
	for _, x := range []float64{0, math.Inf(1), math.Inf(-1), 1000, -1000} {
		if got, want := Exp64(x), math.Exp(x); got != want {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	if Log64(0) != math.Inf(-1) || Log64(math.Inf(1)) != math.Inf(1) || !math.IsNaN(Log64(-1)) {
		t.Errorf("log of 0, infinity and -1 is %v, %v and %v, want -Inf, +Inf and NaN",
			Log64(0), Log64(math.Inf(1)), Log64(-1))
	}
	if got := Exp64(math.NaN()); !math.IsNaN(got) {
		t.Errorf("exp(NaN) is %v, want NaN", got)
	}
}
