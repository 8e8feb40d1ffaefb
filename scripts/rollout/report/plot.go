package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Sizes of a plot, in its own units. A page shows it as wide as there is room.
const (
	plotWidth, plotHeight = 440, 240
	plotLeft, plotRight   = 44, 14 // margins
	plotTop, plotBottom   = 12, 42
	plotTicks             = 6   // labels of the axis below, at most
	maxDots               = 64  // points that have a dot and a title
	labelWidth            = 46  // of the labels above marks
	rangeRoom             = .05 // of the range, above and below
)

// plot is a drawing of lines over steps or batches.
type plot struct {
	Title  string // for readers without eyes
	Below  string // the name of the axis below
	Lines  []line
	Marks  []mark
	From   int // the range of the axis below
	To     int
	Labels []int // of the axis below
}

// line is a line of a plot.
type line struct {
	Name   string
	Class  string // of the style sheet
	Points []point
}

// point is a value of a line; its title says what it is.
type point struct {
	X     float64
	Y     float64
	Title string
}

// mark is a line from top to bottom.
type mark struct {
	X     int
	Label string
}

// drawing is a plot in the plot's units, as the template writes it.
type drawing struct {
	Title, Below  string
	Width, Height int
	Left, Right   int
	Middle        int
	Top, Bottom   int
	Across        []gridLine // across, with the labels on the left
	Down          []gridLine // the labels below
	Marks         []gridLine
	Lines         []drawnLine
}

type gridLine struct{ At, Label string }

type drawnLine struct {
	Name, Class, Points string
	Dots                []dot
}

type dot struct{ X, Y, Title string }

// draw returns the drawing of the plot.
func (p plot) draw() drawing {
	d := drawing{Title: p.Title, Below: p.Below, Width: plotWidth, Height: plotHeight, Left: plotLeft,
		Right: plotWidth - plotRight, Middle: (plotLeft + plotWidth - plotRight) / 2, Top: plotTop,
		Bottom: plotHeight - plotBottom}
	low, high := p.bounds()
	span := float64(max(1, p.To-p.From))
	x := func(v float64) float64 { return plotLeft + (v-float64(p.From))/span*float64(d.Right-d.Left) }
	y := func(v float64) float64 { return float64(d.Bottom) - (v-low)/(high-low)*float64(d.Bottom-d.Top) }
	for i := range 6 {
		v := low + (high-low)*float64(i)/5
		d.Across = append(d.Across, gridLine{pixel(y(v)), number(v)})
	}
	every := (p.To-p.From)/plotTicks + 1
	for v := p.From; v <= p.To; v += every {
		d.Down = append(d.Down, gridLine{pixel(x(float64(v))), strconv.Itoa(v)})
	}
	last := math.Inf(-1)
	for _, m := range p.Marks {
		at := x(float64(m.X))
		if at-last < labelWidth { // two labels would cover each other
			m.Label = ""
		} else {
			last = at
		}
		d.Marks = append(d.Marks, gridLine{pixel(at), m.Label})
	}
	for _, l := range p.Lines {
		drawn := drawnLine{Name: l.Name, Class: l.Class}
		var points []string
		for _, q := range l.Points {
			points = append(points, pixel(x(q.X))+","+pixel(y(q.Y)))
			if len(l.Points) <= maxDots {
				drawn.Dots = append(drawn.Dots, dot{pixel(x(q.X)), pixel(y(q.Y)), q.Title})
			}
		}
		drawn.Points = strings.Join(points, " ")
		d.Lines = append(d.Lines, drawn)
	}
	return d
}

// bounds returns the range of the axis on the left: 0 to 1, unless a value is outside.
func (p plot) bounds() (low, high float64) {
	low, high = 0, 1
	for _, l := range p.Lines {
		for _, q := range l.Points {
			low, high = min(low, q.Y), max(high, q.Y)
		}
	}
	if low < 0 || high > 1 {
		room := (high - low) * rangeRoom
		low, high = low-room, high+room
	}
	return low, high
}

// measures are the lines of a plot.
var measures = [...]struct {
	name, class string
	of          func(sums) *float64
}{
	{"accuracy", "m0", sums.Accuracy},
	{"agreement", "m1", sums.MeanAgreement},
	{"mean score", "m2", sums.MeanScore},
}

// plotOf returns the plot of a series, whose numbers are called what and shown from base on.
func plotOf(s series, what, of string, base int) plot {
	p := plot{Title: fmt.Sprintf("accuracy, agreement and mean score by %s, %s", what, of), Below: what, From: base,
		To: base + max(0, len(s.bins)*s.width-1)}
	for _, m := range measures {
		l := line{Name: m.name, Class: m.class}
		for bin, b := range s.bins {
			v := m.of(b)
			if v == nil {
				continue
			}
			from, to := s.span(bin)
			l.Points = append(l.Points, point{float64(from+to)/2 + float64(base), *v,
				fmt.Sprintf("%s %s: %s %s", what, span(from+base, to+base), m.name, number(*v))})
		}
		if len(l.Points) > 0 {
			p.Lines = append(p.Lines, l)
		}
	}
	return p
}

// span writes a range of numbers: "7", or "7–9".
func span(from, to int) string {
	if from == to {
		return strconv.Itoa(from)
	}
	return fmt.Sprintf("%d–%d", from, to)
}

func pixel(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// number writes a value with at most three digits behind the point.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'g', 6, 64)
}
