// Package curve records the losses of a training run and draws them as SVG.
//
// A curve has at most MaxPoints points. In a longer training run, each point is
// the mean of several steps. The curve depends only on the losses, and the
// drawing, of a few kilobytes, only on the curve. The package does no I/O.
//
// It uses no plotting library: two axes and two lines are little code, and the
// libraries for Go bring fonts, rasterisers and PDF writers with them.
package curve

// MaxPoints is the maximum number of points of a curve.
const MaxPoints = 2048

// Curve is the loss curve of the steps so far. The zero value is an empty curve.
type Curve struct {
	Every  int       `json:"every"`  // steps per point; the last point may have fewer
	Points []float64 `json:"points"` // mean losses, in nats
	Steps  int       `json:"steps"`
}

// Add adds the next step's loss.
func (c *Curve) Add(loss float64) {
	if c.Every == 0 {
		c.Every = 1
	}
	if c.Steps == c.Every*MaxPoints {
		for i := range MaxPoints / 2 {
			c.Points[i] = (c.Points[2*i] + c.Points[2*i+1]) / 2
		}
		c.Points, c.Every = c.Points[:MaxPoints/2], 2*c.Every
	}
	in := c.Steps % c.Every // number of steps in the last point
	if in == 0 {
		c.Points = append(c.Points, 0)
	}
	last := &c.Points[len(c.Points)-1]
	*last += (loss - *last) / float64(in+1)
	c.Steps++
}

// Valid reports whether the curve is consistent, as if made by Add. Check it after
// reading a curve.
func (c Curve) Valid() bool {
	if c.Steps == 0 {
		return len(c.Points) == 0
	}
	if c.Every < 1 || c.Steps < 0 || len(c.Points) > MaxPoints || len(c.Points) != (c.Steps+c.Every-1)/c.Every {
		return false
	}
	for _, p := range c.Points {
		if p-p != 0 {
			return false
		}
	}
	return true
}

// Point is the loss at a step.
type Point struct {
	Step int     // the last of the steps that it sums up, from 1
	Loss float64 // their mean
}

// Thin returns the curve as at most that many points. The last one is that of the last step.
func (c Curve) Thin(most int) (out []Point) {
	together := max(1, (len(c.Points)+most-1)/most) // points that become one
	for from := 0; from < len(c.Points); from += together {
		to := min(len(c.Points), from+together)
		sum, last := 0.0, 0
		for i, p := range c.Points[from:to] {
			first := (from + i) * c.Every
			last = min(c.Steps, first+c.Every)
			sum += p * float64(last-first)
		}
		out = append(out, Point{last, sum / float64(last-from*c.Every)})
	}
	return out
}
