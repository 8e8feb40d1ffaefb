package browser

import (
	"math"
	"testing"

	"rollout/gpuworker/training/curve"
)

// box is where an element is in the window, in CSS pixels.
type box struct {
	Left   float64 `json:"left"`
	Top    float64 `json:"top"`
	Right  float64 `json:"right"`
	Bottom float64 `json:"bottom"`
}

func (a box) overlaps(b box) bool {
	return a.Left < b.Right && b.Left < a.Right && a.Top < b.Bottom && b.Top < a.Bottom
}

func (a box) within(b box) bool {
	return a.Left >= b.Left && a.Right <= b.Right && a.Top >= b.Top && a.Bottom <= b.Bottom
}

// element is an element of a drawing.
type element struct {
	Box  box    `json:"box"`
	Text string `json:"text"`
}

const elements = `((selector) => [...document.querySelectorAll(selector)].map((e) => {
	const r = e.getBoundingClientRect();
	return {text: e.textContent, box: {left: r.left, top: r.top, right: r.right, bottom: r.bottom}};
}))`

// losses falls from 5 with some noise, as the loss of a training does.
func losses(n int) (out []float64) {
	for i := range n {
		out = append(out, 5*math.Exp(-float64(i)/float64(n)*4)+0.3*math.Sin(float64(i*i)))
	}
	return out
}

// TestLossCurvesAreReadable opens loss.svg as a browser shows it: every label can be
// read, none covers another, and the lines stay in the plot.
func TestLossCurvesAreReadable(t *testing.T) {
	t.Parallel()
	curves := map[string]curve.Curve{
		"long":     {Steps: 100000, Every: 200, Points: losses(500)},
		"short":    {Steps: 3, Every: 1, Points: []float64{2.5, 2.1, 1.9}},
		"one":      {Steps: 1, Every: 1, Points: []float64{2.5}},
		"equal":    {Steps: 40, Every: 1, Points: make([]float64, 40)},
		"tiny":     {Steps: 40, Every: 1, Points: []float64{1e-9, 2e-9, 1.5e-9}},
		"diverged": {Steps: 400, Every: 100, Points: []float64{3, 1e4, 1e8, 1e12}},
		"empty":    {},
	}
	bodies := map[string]string{}
	for name, c := range curves {
		bodies["/"+name+".svg"] = string(c.SVG("SFT of rollout/tiny <" + name + "> & co."))
	}
	url := serve(t, bodies)
	b := Start(t)
	for name := range curves {
		p := b.Open(url+"/"+name+".svg", Desk)
		p.Screenshot(name)
		drawing := Eval[[]element](p, elements+`("svg")`)
		labels := Eval[[]element](p, elements+`("text")`)
		lines := Eval[[]element](p, elements+`("polyline")`)
		if problems := p.Problems(); len(problems) > 0 {
			t.Errorf("%s: problems: %q", name, problems)
		}
		title := "SFT of rollout/tiny <" + name + "> & co."
		if len(drawing) != 1 || len(lines) != 2 || len(labels) < 3 || labels[0].Text != title {
			t.Fatalf("%s: %d drawings, %d lines, labels %+v", name, len(drawing), len(lines), labels)
		}
		for i, l := range labels {
			if l.Box.Bottom-l.Box.Top < 8 || !l.Box.within(drawing[0].Box) {
				t.Errorf("%s: the label %q is at %+v, want it readable within %+v", name, l.Text, l.Box, drawing[0].Box)
			}
			for _, other := range labels[:i] {
				if l.Box.overlaps(other.Box) {
					t.Errorf("%s: the labels %q and %q cover each other", name, l.Text, other.Text)
				}
			}
			for _, line := range lines {
				if line.Box.overlaps(l.Box) {
					t.Errorf("%s: a line at %+v covers the label %q", name, line.Box, l.Text)
				}
			}
		}
	}
}
