package curve_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"rollout/gpuworker/training/curve"
)

func curveOf(losses ...float64) (c curve.Curve) {
	for _, l := range losses {
		c.Add(l)
	}
	return c
}

func TestLongTrainingHasAtMostMaxPoints(t *testing.T) {
	t.Parallel()
	var c curve.Curve
	const steps = 5*curve.MaxPoints + 3
	for i := range steps {
		c.Add(float64(i))
	}
	if c.Every != 8 || c.Steps != steps || len(c.Points) != (steps+7)/8 || !c.Valid() {
		t.Fatalf("%d steps per point, %d steps, %d points; want 8, %d and %d",
			c.Every, c.Steps, len(c.Points), steps, (steps+7)/8)
	}
	for i, p := range c.Points[:len(c.Points)-1] {
		if want := float64(8*i) + 3.5; math.Abs(p-want) > 1e-9 {
			t.Errorf("point %d is %v, want the mean of its steps, %v", i, p, want)
		}
	}
	if got, want := c.Points[len(c.Points)-1], float64(steps-2); math.Abs(got-want) > 1e-9 {
		t.Errorf("the last point, of three steps, is %v, want %v", got, want)
	}
}

func TestCurveContinuesAfterJSON(t *testing.T) {
	t.Parallel()
	whole, part := curveOf(3, 2, 1), curveOf(3, 2)
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	var again curve.Curve
	if err := json.Unmarshal(text, &again); err != nil || !again.Valid() {
		t.Fatalf("%+v, %v", again, err)
	}
	again.Add(1)
	if a, b := string(again.SVG("x")), string(whole.SVG("x")); a != b {
		t.Errorf("the continued curve is\n%s\nwant\n%s", a, b)
	}
}

func TestThinnedCurvesHaveMeansAndEndAtTheLastStep(t *testing.T) {
	t.Parallel()
	type points = []curve.Point
	long := curve.Curve{Every: 2, Steps: 7, Points: []float64{8, 6, 4, 1}} // the last point is one step
	for name, c := range map[string]struct {
		curve curve.Curve
		most  int
		want  points
	}{
		"of no step":                {curve.Curve{}, 10, nil},
		"shorter than allowed":      {curveOf(3, 2, 1), 10, points{{1, 3}, {2, 2}, {3, 1}}},
		"as long as allowed":        {curveOf(3, 2, 1), 3, points{{1, 3}, {2, 2}, {3, 1}}},
		"longer":                    {curveOf(4, 2, 1), 2, points{{2, 3}, {3, 1}}},
		"longer, of several steps":  {long, 2, points{{4, 7}, {7, 3}}},
		"shorter, of several steps": {long, 4, points{{2, 8}, {4, 6}, {6, 4}, {7, 1}}},
	} {
		if got := c.curve.Thin(c.most); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestInconsistentCurvesAreInvalid(t *testing.T) {
	t.Parallel()
	for _, c := range []curve.Curve{
		{Points: []float64{1}},
		{Every: 0, Steps: 1, Points: []float64{1}},
		{Every: 1, Steps: 2, Points: []float64{1}},
		{Every: 1, Steps: -1},
		{Every: 1, Steps: 1, Points: []float64{math.NaN()}},
		{Every: 1, Steps: curve.MaxPoints + 1, Points: make([]float64, curve.MaxPoints+1)},
	} {
		if c.Valid() {
			t.Errorf("%+v is valid", c)
		}
	}
	if !(curve.Curve{}).Valid() {
		t.Error("an empty curve is invalid")
	}
}

func TestDrawingIsWellFormedXMLWithLabels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]curve.Curve{
		"no steps": {}, "one step": curveOf(2.5), "equal losses": curveOf(1, 1, 1),
		"falling": curveOf(7, 5, 4, 3.5, 3.2), "huge": curveOf(1e30, -1e30), "small": curveOf(1e-12, 2e-12),
		"around zero": curveOf(5, 0.1, 0, -0.1),
	} {
		svg := string(c.SVG(`<sft> & "x"`))
		if strings.Contains(svg, ">-0<") {
			t.Errorf("%s: zero has a sign:\n%s", name, svg)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: a coordinate is not finite:\n%s", name, svg)
		}
		texts := 0
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok && start.Name.Local == "text" {
				texts++
			}
		}
		if texts < 6 {
			t.Errorf("%s: %d labels, want at least 6 with those of the axes", name, texts)
		}
	}
}
