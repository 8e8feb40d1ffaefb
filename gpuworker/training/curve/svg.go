package curve

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

const (
	width, height = 720, 400 // size of the drawing in pixels
	left, right   = 64, 32   // margins in pixels
	top, bottom   = 40, 44
	ticks         = 5  // approximate number of grid lines per axis
	smoothing     = 40 // the running mean is over 1/smoothing of the points
)

// SVG returns a drawing of the curve: a line through all points, and a line of
// their running mean. title is the drawing's title.
func (c Curve) SVG(title string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="14">%s</text>`+"\n", left, escaped(title))
	f := c.frame()
	for _, y := range f.y.marks() {
		p := f.yAt(y)
		fmt.Fprintf(&b, `<path d="M%d %sH%d" stroke="#ddd"/><text x="%d" y="%s" text-anchor="end">%s</text>`+"\n",
			left, pixel(p), width-right, left-8, pixel(p+4), label(y, 4))
	}
	for _, x := range f.x.marks() {
		p := f.xAt(x)
		fmt.Fprintf(&b, `<path d="M%s %dV%d" stroke="#ddd"/><text x="%s" y="%d" text-anchor="middle">%s</text>`+"\n",
			pixel(p), top, height-bottom, pixel(p), height-bottom+18, label(x, 9))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">step</text>`+"\n", (left+width-right)/2, height-8)
	fmt.Fprintf(&b, `<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">loss</text>`+"\n",
		height/2, height/2)
	f.line(&b, c.Points, c, `stroke="#9ec5e8"`)
	f.line(&b, smooth(c.Points), c, `stroke="#1f6fb2" stroke-width="2"`)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// frame maps steps and losses to pixels.
type frame struct{ x, y axis }

// axis is the range of an axis; high is above low.
type axis struct{ low, high float64 }

// frame returns the frame that shows all points of the curve.
func (c Curve) frame() frame {
	y := axis{math.Inf(1), math.Inf(-1)}
	for _, p := range c.Points {
		y.low, y.high = min(y.low, p), max(y.high, p)
	}
	if len(c.Points) == 0 {
		y = axis{0, 1}
	}
	if room := (y.high - y.low) / 20; room > 0 {
		y = axis{y.low - room, y.high + room}
	} else { // all losses are equal
		y = axis{y.low - 0.5, y.high + 0.5}
	}
	return frame{axis{0, float64(max(1, c.Steps))}, y}
}

func (f frame) xAt(v float64) float64 {
	return left + (v-f.x.low)/(f.x.high-f.x.low)*(width-left-right)
}

func (f frame) yAt(v float64) float64 {
	return height - bottom - (v-f.y.low)/(f.y.high-f.y.low)*(height-top-bottom)
}

// line draws a line through the points, each at its last step.
func (f frame) line(b *bytes.Buffer, points []float64, c Curve, style string) {
	fmt.Fprintf(b, `<polyline fill="none" %s points="`, style)
	for i, p := range points {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(b, "%s,%s", pixel(f.xAt(float64(min(c.Steps, (i+1)*c.Every)))), pixel(f.yAt(p)))
	}
	b.WriteString(`"/>` + "\n")
}

// marks returns a few round values within the range.
func (a axis) marks() (out []float64) {
	rough := (a.high - a.low) / ticks
	step := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, times := range []float64{10, 5, 2} {
		if step*times <= rough*1.5 {
			step *= times
			break
		}
	}
	for i := math.Ceil(a.low/step) + 0; i*step <= a.high && len(out) < 4*ticks; i++ { // + 0 makes 0 of -0
		out = append(out, i*step)
	}
	return out
}

// smooth returns the running mean of the points.
func smooth(points []float64) []float64 {
	reach := len(points) / smoothing / 2
	out := make([]float64, len(points))
	for i := range points {
		around := points[max(0, i-reach):min(len(points), i+reach+1)]
		sum := 0.0
		for _, p := range around {
			sum += p
		}
		out[i] = sum / float64(len(around))
	}
	return out
}

func pixel(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// label returns a number with at most that many digits.
func label(v float64, digits int) string { return strconv.FormatFloat(v, 'g', digits, 64) }

func escaped(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer returns no error
	return b.String()
}
