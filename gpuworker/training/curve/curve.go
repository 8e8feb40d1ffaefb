// Package curve keeps the losses of a training and draws them.
//
// However long the training is, a curve has at most MaxPoints points: each
// then stands for the mean of several steps. It is a pure function of the
// losses, and the drawing, an SVG of a few kilobytes, of the curve.
//
// The drawing is our own: it is two axes and two lines, and the plotting
// libraries for Go bring fonts, rasterisers and PDF writers with them.
package curve

// MaxPoints bounds a curve.
const MaxPoints = 2048

// Curve is the losses of the steps so far. The zero value is ready.
type Curve struct {
	Every  int       `json:"every"`  // steps of a point; the last may stand for fewer
	Points []float64 `json:"points"` // mean losses, in nats
	Steps  int       `json:"steps"`
}

// Add takes the next step's loss.
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
	in := c.Steps % c.Every // steps of the last point
	if in == 0 {
		c.Points = append(c.Points, 0)
	}
	last := &c.Points[len(c.Points)-1]
	*last += (loss - *last) / float64(in+1)
	c.Steps++
}

// Valid reports whether a curve that was read could have been made by Add.
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
