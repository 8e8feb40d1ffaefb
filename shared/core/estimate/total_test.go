package estimate_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"rollout/shared/core/estimate"
)

// item is one item of a file: its size in bytes, and the tokens of its prompt and answer.
type item struct{ size, tokens float64 }

// shapes are files by the distribution of their lengths: tokens of prompts are a quarter
// of the bytes and a template, and answers are as named.
var shapes = map[string]func(r *rand.Rand) item{
	"all the same": func(*rand.Rand) item { return item{100, 50} },
	"uniform": func(r *rand.Rand) item {
		x := 20 + 400*r.Float64()
		return item{x, x/4 + 1 + 300*r.Float64()}
	},
	"lognormal, exponential": func(r *rand.Rand) item {
		x := lognormal(r, 6, 1)
		return item{x, x/4 + 12 + 200*r.ExpFloat64()}
	},
	"lognormal, proportional": func(r *rand.Rand) item {
		x := lognormal(r, 6, 1.5)
		return item{x, x / 4 * (1 + lognormal(r, 0, 0.5))}
	},
	"Pareto, lognormal": func(r *rand.Rand) item {
		x := pareto(r, 100, 1.5, 1e6)
		return item{x, x/4 + min(lognormal(r, 5, 1), 4096)}
	},
	"Pareto, proportional": func(r *rand.Rand) item {
		x := pareto(r, 100, 1.5, 1e6)
		return item{x, x / 4 * (1 + r.Float64())}
	},
	"short, lognormal of σ 1.5": func(r *rand.Rand) item {
		x := 100 + 50*r.Float64()
		return item{x, x/4 + min(lognormal(r, 5, 1.5), 8192)}
	},
	"short, Pareto": func(r *rand.Rand) item { return item{200, 50 + pareto(r, 50, 1.5, 4096)} },
	"a few long ones": func(r *rand.Rand) item {
		if r.Float64() < 0.05 {
			return item{20000, 8000 + 500*r.NormFloat64()}
		}
		return item{200, 70}
	},
	"a few long answers": func(r *rand.Rand) item {
		if r.Float64() < 0.03 {
			return item{200, 50 + 4096}
		}
		return item{200, 70}
	},
	"two kinds": func(r *rand.Rand) item {
		x := lognormal(r, 7, 1.2)
		if r.Float64() < 0.5 {
			return item{x, x/4 + 5}
		}
		return item{x, x/4 + x/3*(0.5+r.Float64())}
	},
	"shorter answers to longer prompts": func(r *rand.Rand) item {
		x := 50 + 4000*r.Float64()
		return item{x, x/4 + 1e6/(x+100)*r.Float64()}
	},
}

func lognormal(r *rand.Rand, mu, sigma float64) float64 { return math.Exp(mu + sigma*r.NormFloat64()) }

func pareto(r *rand.Rand, least, exponent, most float64) float64 {
	return min(most, least/math.Pow(1-r.Float64(), 1/exponent))
}

// sampled draws a sample of a file of items of the shape.
func sampled(t *testing.T, shape func(*rand.Rand) item, items, size int, seed uint64) (
	p estimate.Population, sizes, tokens []float64, sum float64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]item, items)
	for i := range all {
		all[i] = shape(r)
		p.Add(all[i].size)
		sum += all[i].tokens
	}
	for _, i := range chosen(t, size, items, seed) {
		sizes, tokens = append(sizes, all[i].size), append(tokens, all[i].tokens)
	}
	return p, sizes, tokens, sum
}

// TestIntervalsContainTheTruth draws samples of 200 from files of many shapes, with 100
// seeds each, and counts how often the stated interval has the tokens of the whole file.
// The widths show that it does not do so by saying nothing.
func TestIntervalsContainTheTruth(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds = 100
			for _, items := range []int{400, 5000} {
				contained, width := 0, 0.0
				for seed := range uint64(seeds) {
					p, sizes, tokens, sum := sampled(t, shape, items, 200, seed)
					got, ok := estimate.Total(p, sizes, tokens, seed)
					if !ok {
						t.Fatal("no estimate")
					}
					if got.Low <= sum && sum <= got.High {
						contained++
					}
					width += (got.High - got.Low) / 2 / sum / seeds
				}
				t.Logf("%d items: %d of %d intervals, half of the width is %.1f %%", items, contained, seeds, 100*width)
				if contained < 90 {
					t.Errorf("%d items: %d of %d intervals contain the truth", items, contained, seeds)
				}
				if most := 1.3; width > most {
					t.Errorf("%d items: intervals reach %.0f %% away", items, 100*width)
				}
			}
		})
	}
}

func TestOrdinaryFilesHaveNarrowIntervals(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"uniform", "lognormal, exponential", "a few long ones"} {
		p, sizes, tokens, sum := sampled(t, shapes[name], 20000, 200, 7)
		got, _ := estimate.Total(p, sizes, tokens, 7)
		if half := (got.High - got.Low) / 2 / sum; half > 0.12 || half <= 0 {
			t.Errorf("%s: the interval reaches %.1f %% away", name, 100*half)
		}
	}
}

func TestValuesOnALineAreExact(t *testing.T) {
	t.Parallel()
	line := func(r *rand.Rand) item { x := lognormal(r, 5, 1); return item{x, 7 + 0.3*x} }
	p, sizes, tokens, sum := sampled(t, line, 3000, 50, 4)
	got, ok := estimate.Total(p, sizes, tokens, 4)
	if !ok || got.Low > sum || got.High < sum || got.High-got.Low > 1e-6*sum {
		t.Errorf("%+v, %v, want %v", got, ok, sum)
	}
}

func TestASampleOfEverythingIsExact(t *testing.T) {
	t.Parallel()
	p, sizes, tokens, sum := sampled(t, shapes["uniform"], 200, 200, 3)
	got, ok := estimate.Total(p, sizes, tokens, 3)
	if !ok || math.Abs(got.Value-sum) > 1e-6 || got.Low != got.Value || got.High != got.Value {
		t.Errorf("%+v, %v, want %v", got, ok, sum)
	}
}

func TestSmallAndOddSamplesHaveFiniteIntervals(t *testing.T) {
	t.Parallel()
	p := estimate.Population{Items: 10, Sizes: 100, Squares: 1200}
	for name, c := range map[string]struct {
		p             estimate.Population
		sizes, values []float64
		ok            bool
	}{
		"nothing":           {p, nil, nil, false},
		"one item":          {p, []float64{10}, []float64{4}, false},
		"two items":         {p, []float64{5, 15}, []float64{4, 9}, true},
		"one size":          {p, []float64{10, 10, 10}, []float64{4, 9, 1}, true},
		"no sizes":          {estimate.Population{Items: 10}, []float64{0, 0, 0}, []float64{4, 9, 1}, true},
		"no values":         {p, []float64{1, 2, 3}, []float64{0, 0, 0}, true},
		"one that is long":  {p, []float64{1, 1, 1, 70}, []float64{1, 1, 1, 70}, true},
		"an empty file":     {estimate.Population{}, nil, nil, true},
		"one of two values": {p, []float64{1, 2, 3, 4}, []float64{0, 0, 0, 500}, true},
	} {
		got, ok := estimate.Total(c.p, c.sizes, c.values, 1)
		if ok != c.ok || math.IsNaN(got.Value) || math.IsInf(got.High, 0) ||
			!(got.Low <= got.Value && got.Value <= got.High) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
		sum := 0.0
		for _, v := range c.values {
			sum += v
		}
		if ok && got.Low < sum {
			t.Errorf("%s: %+v is less than the %v of the sample", name, got, sum)
		}
	}
}

func TestTheSameSampleGivesTheSameInterval(t *testing.T) {
	t.Parallel()
	p, sizes, tokens, _ := sampled(t, shapes["two kinds"], 5000, 50, 3)
	first, _ := estimate.Total(p, sizes, tokens, 9)
	again, _ := estimate.Total(p, sizes, tokens, 9)
	if first != again {
		t.Errorf("%+v, then %+v", first, again)
	}
}
