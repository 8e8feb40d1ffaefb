package estimate

import "math"

// Interval is an estimate and the interval that contains the truth with a confidence of
// 95 %.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// rounding is how much floating-point numbers may be off, as a share.
const rounding = 1e-9

// Population is what is known of all items.
type Population struct {
	Items   uint64
	Sizes   float64 // sum of the sizes
	Squares float64 // sum of the squares of the sizes
}

// Add adds an item of that size, in any unit that is not negative.
func (p *Population) Add(size float64) {
	p.Items++
	p.Sizes += size
	p.Squares += size * size
}

// Total estimates the sum of a value, such as tokens, over all items of p from a sample: the
// sizes and values of some of them, in the same order. The seed is of the bootstrap. It
// returns false for a sample of fewer than two items, unless it is everything.
func Total(p Population, sizes, values []float64, seed uint64) (Interval, bool) {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	n := len(values)
	if uint64(n) >= p.Items {
		return Interval{sum, sum, sum}, true
	}
	if n < 2 {
		return Interval{}, false
	}
	f := fitLine(p.Sizes/float64(p.Items), sizes, values)
	low, high := studentised(f.residuals, seed)
	items := float64(p.Items)
	rest := max(0, p.Squares-squares(sizes)) // of the items that were not asked
	unseen := f.scatter(sizes) * rest / (items * items)
	deviation := math.Sqrt(variance(f.residuals)/float64(n)*(1-float64(n)/items) + unseen)
	deviation += rounding * math.Abs(f.mean) // values on a line have no other deviation
	// The sum over all items is at least that over the sample.
	return Interval{
		Value: max(sum, items*f.mean),
		Low:   max(sum, items*(f.mean-high*deviation)),
		High:  max(sum, items*(f.mean-low*deviation)),
	}, true
}

// line is the regression of the values on the sizes.
type line struct {
	mean      float64   // the estimated mean value of all items
	center    float64   // their mean size
	residuals []float64 // of the sample, as they enter the variance of the mean; their mean is 0
}

// maxLeverage bounds the leverage by which a residual is enlarged: a line goes through the
// one item that is much longer than all others, which says nothing about its scatter.
const maxLeverage = 0.95

// fitLine fits a line by least squares, with weights that fall as the size plus the mean size
// grows, and estimates the mean value of a population with the mean size center.
func fitLine(center float64, sizes, values []float64) line {
	n := float64(len(values))
	weight := func(size float64) float64 { return 1 / (size + center) }
	if !(center > 0) { // all sizes are 0
		weight = func(float64) float64 { return 1 }
	}
	var w, wx, wy, wxx, wxy, x, y float64
	for i, size := range sizes {
		a := weight(size)
		w, wx, wy = w+a, wx+a*size, wy+a*values[i]
		wxx, wxy = wxx+a*size*size, wxy+a*size*values[i]
		x, y = x+size/n, y+values[i]/n
	}
	f := line{mean: y, center: center, residuals: make([]float64, len(values))}
	spread := w*wxx - wx*wx
	if !(spread > 1e-12*w*wxx) { // all items have the same size, or none
		for i := range values {
			f.residuals[i] = values[i] - y
		}
		return f
	}
	slope := (w*wxy - wx*wy) / spread
	start := (wy - slope*wx) / w
	f.mean = y + slope*(center-x)
	mean := 0.0
	for i, size := range sizes {
		a := weight(size)
		leverage := a * (wxx - 2*size*wx + size*size*w) / spread
		gain := 1 + n*(center-x)*a*(w*size-wx)/spread // the weight of this value in f.mean, times n
		f.residuals[i] = (values[i] - start - slope*size) * gain / (1 - min(leverage, maxLeverage))
		mean += f.residuals[i] / n
	}
	for i := range f.residuals {
		f.residuals[i] -= mean
	}
	return f
}

// scatter returns the mean square of the residuals relative to the sizes, if the deviation
// of an item grows as its size does.
func (f line) scatter(sizes []float64) float64 {
	sum := 0.0
	for i, r := range f.residuals {
		if scale := sizes[i] + f.center; scale > 0 {
			sum += r * r / (scale * scale)
		}
	}
	return sum / float64(len(sizes)-1)
}

func squares(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x * x
	}
	return sum
}

// variance returns the variance of residuals, whose mean is 0.
func variance(residuals []float64) float64 { return squares(residuals) / float64(len(residuals)-1) }
