package optimize

import (
	"fmt"
	"math"
	"testing"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

func TestScheduleRisesToThePeakAndFallsToTheFloor(t *testing.T) {
	t.Parallel()
	cosine := Schedule{Shape: Cosine, Peak: 2, Warmup: 4, Total: 12, Floor: 0.1}
	linear := Schedule{Shape: Linear, Peak: 2, Warmup: 4, Total: 12, Floor: 0.1}
	constant := Schedule{Shape: Constant, Peak: 2}
	for _, c := range []struct {
		s    Schedule
		step int
		want float64
	}{
		{cosine, 1, 0.5}, {cosine, 2, 1}, {cosine, 4, 2}, {cosine, 8, 1.1}, {cosine, 12, 0.2}, {cosine, 99, 0.2},
		{cosine, 6, 2 * (0.1 + 0.9*0.5*(1+math.Sqrt2/2))},
		{linear, 3, 1.5}, {linear, 4, 2}, {linear, 6, 1.55}, {linear, 8, 1.1}, {linear, 12, 0.2}, {linear, 99, 0.2},
		{constant, 1, 2}, {constant, 1e6, 2},
	} {
		if got := c.s.Rate(c.step); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%s, step %d: %v, want %v", c.s.Shape, c.step, got, c.want)
		}
	}
}

func TestSettingsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	good := Schedule{Shape: Cosine, Peak: 1, Warmup: 1, Total: 2}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"unknown shape":          Schedule{Shape: "step", Peak: 1}.Validate(),
		"only warm-up":           Schedule{Shape: Linear, Peak: 1, Warmup: 5, Total: 5}.Validate(),
		"rate NaN":               Schedule{Shape: Constant, Peak: math.NaN()}.Validate(),
		"negative warm-up":       Schedule{Shape: Constant, Peak: 1, Warmup: -1}.Validate(),
		"floor above the peak":   Schedule{Shape: Constant, Peak: 1, Floor: 2}.Validate(),
		"adamw beta of 1":        AdamW{Beta1: 1, Beta2: 0.9, Epsilon: 1}.Validate(),
		"adamw epsilon of 0":     AdamW{Beta1: 0.9, Beta2: 0.9}.Validate(),
		"adamw negative decay":   AdamW{Beta1: 0.9, Beta2: 0.9, Epsilon: 1, WeightDecay: -1}.Validate(),
		"sgd momentum of 1":      SGD{Momentum: 1}.Validate(),
		"sgd infinite decay":     SGD{WeightDecay: math.Inf(1)}.Validate(),
		"sgd unequal lengths":    SGD{}.Step(Compute{}, make([]float32, 2), make([]float32, 3), nil, 1),
		"sgd without a velocity": SGD{Momentum: 0.9}.Step(Compute{}, make([]float32, 2), make([]float32, 2), nil, 1),
		"adamw step 0":           AdamW{}.Step(Compute{}, AdamWState{}, 0, 1),
	} {
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an Invalid fault", name, err)
		}
	}
}

// TestAdamWFollowsItsFormula compares five steps with the paper's algorithm,
// computed in float64.
func TestAdamWFollowsItsFormula(t *testing.T) {
	t.Parallel()
	a := AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-6, WeightDecay: 0.1}
	p, m, v := []float32{1, -2, 0.5}, make([]float32, 3), make([]float32, 3)
	wp, wm, wv := []float64{1, -2, 0.5}, make([]float64, 3), make([]float64, 3)
	for step := 1; step <= 5; step++ {
		g := []float32{0.3 * float32(step), -4, 0}
		rate := 0.1 / float64(step)
		state := AdamWState{Parameters: p, Gradients: g, First: m, Second: v}
		if err := a.Step(Compute{}, state, step, rate); err != nil {
			t.Fatal(err)
		}
		for i := range wp {
			d := float64(g[i])
			wm[i] = a.Beta1*wm[i] + (1-a.Beta1)*d
			wv[i] = a.Beta2*wv[i] + (1-a.Beta2)*d*d
			mHat := wm[i] / (1 - math.Pow(a.Beta1, float64(step)))
			vHat := wv[i] / (1 - math.Pow(a.Beta2, float64(step)))
			wp[i] -= rate * (mHat/(math.Sqrt(vHat)+a.Epsilon) + a.WeightDecay*wp[i])
			if math.Abs(float64(p[i])-wp[i]) > 1e-6 {
				t.Errorf("step %d, parameter %d: %v, want %v", step, i, p[i], wp[i])
			}
		}
	}
}

func TestSGDFollowsItsFormula(t *testing.T) {
	t.Parallel()
	p, v := []float32{1, -2}, make([]float32, 2)
	s := SGD{Momentum: 0.5, WeightDecay: 0.25}
	for range 2 {
		if err := s.Step(Compute{}, p, []float32{1, 2}, v, 0.5); err != nil {
			t.Fatal(err)
		}
	}
	// d = 1.25, 1.5; p = 0.375, −2.75; d = 1.09375, 1.3125; v = 1.71875, 2.0625
	if p[0] != -0.484375 || p[1] != -3.78125 || v[0] != 1.71875 || v[1] != 2.0625 {
		t.Errorf("parameters %v, velocity %v", p, v)
	}
	q := []float32{1, -2}
	if err := (SGD{}).Step(Compute{}, q, []float32{1, 2}, nil, 0.5); err != nil || q[0] != 0.5 || q[1] != -3 {
		t.Errorf("plain step: %v, %v", q, err)
	}
}

func TestClipBoundsTheNormAndRefusesNaN(t *testing.T) {
	t.Parallel()
	g := []float32{3, 0, 0, 0, -4}
	if norm, err := Clip(Compute{}, g, 10); norm != 5 || err != nil || g[0] != 3 {
		t.Errorf("below the limit: %v, %v, %v", norm, err, g)
	}
	if norm, err := Clip(Compute{}, g, 2.5); norm != 5 || err != nil || g[0] != 1.5 || g[4] != -2 {
		t.Errorf("above the limit: %v, %v, %v", norm, err, g)
	}
	g[2] = float32(math.NaN())
	if _, err := Clip(Compute{}, g, 1); !fault.Is(err, fault.Corrupt) || g[0] != 1.5 {
		t.Errorf("NaN: %v, %v", err, g)
	}
}

func TestStepsHaveTheSameBitsWithAnyThreadsAndKernels(t *testing.T) {
	t.Parallel()
	const n = 3*chunk + 5
	train := func(on Compute) string {
		p, g, velocity := make([]float32, n), make([]float32, n), make([]float32, n)
		m, v := make([]float32, n), make([]float32, n)
		a, state := AdamW{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1}, AdamWState{p, g, m, v}
		var norms []float64
		for step := 1; step <= 4; step++ {
			for i := range g {
				g[i] = float32(i*step%7919-4000) * 1e-3
			}
			norm, err := Clip(on, g, 1)
			if err != nil {
				t.Fatal(err)
			}
			norms = append(norms, norm)
			if err := a.Step(on, state, step, 0.01); err != nil {
				t.Fatal(err)
			}
			if err := (SGD{Momentum: 0.9}).Step(on, p, g, velocity, 0.01); err != nil {
				t.Fatal(err)
			}
		}
		return fmt.Sprint(norms, p, m, v, velocity)
	}
	want := train(Compute{})
	for _, on := range []Compute{{kernel.Scalar(), 2}, {kernel.Best(), 1}, {kernel.Best(), 16}} {
		if train(on) != want {
			t.Errorf("results with %d threads of %v differ", on.Threads, on.Kernels)
		}
	}
}
