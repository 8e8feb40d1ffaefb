package rules

import (
	"testing"

	"rollout/shared/config"
	"rollout/shared/grade"
)

func TestVerdictIsReadOnlyWhereItIsCertain(t *testing.T) {
	t.Parallel()
	ranged := config.Grade{Range: []float64{1, 5}}
	extracting := config.Grade{Range: []float64{0, 10}, Extract: `Score: (\S+)`}
	labels := config.Grade{Labels: []string{"Correct", "incorrect", "C++"}, Passing: []string{"correct"}}
	scored := config.Grade{Labels: []string{"good", "so-so", "bad"}, LabelScores: []float64{1, 0.5, 0}}
	const none = -1
	for name, c := range map[string]struct {
		grader config.Grade
		text   string
		want   float64
	}{
		"lowest":                     {ranged, "1", 0},
		"highest":                    {ranged, " 5\n", 1},
		"between":                    {ranged, "2.0", 0.25},
		"bold":                       {ranged, "**3**.", 0.5},
		"too high":                   {ranged, "6", none},
		"too low":                    {ranged, "0.99", none},
		"negative":                   {ranged, "-3", none},
		"a fraction":                 {ranged, "4/5", none},
		"percent":                    {ranged, "3%", none},
		"a sentence":                 {ranged, "I give it a 3", none},
		"a word":                     {ranged, "NaN", none},
		"hexadecimal":                {ranged, "0x3", none},
		"exponent":                   {ranged, "3e0", none},
		"nothing":                    {ranged, "", none},
		"extracted":                  {extracting, "It has 3 faults.\nScore: 7", 0.7},
		"the last one":               {extracting, "Score: 3 of 10? No. Score: 8.", 0.8},
		"leading point":              {extracting, "Score: .5", 0.05},
		"not there":                  {extracting, "7", none},
		"extracted, no number":       {extracting, "Score: high", none},
		"out of range, extracted":    {extracting, "Score: 11", none},
		"passing":                    {labels, "correct", 1},
		"not passing":                {labels, "**Incorrect.**", 0},
		"a label with punctuation":   {labels, "C++", 0},
		"two labels":                 {labels, "correct or incorrect", none},
		"denied":                     {labels, "not correct", none},
		"another label":              {labels, "right", none},
		"label with a score":         {scored, "So-so!", 0.5},
		"label with the score 0":     {scored, "bad", 0},
		"label that is part of text": {scored, "bad luck", none},
	} {
		read, err := NewVerdict(c.grader)
		if err != nil {
			t.Fatal(err)
		}
		want := grade.Score{Value: c.want}
		if c.want == none {
			want = grade.Missing(grade.Unparseable)
		}
		if got := read(c.text, false); got != want {
			t.Errorf("%s: %q has %+v, want %+v", name, c.text, got, want)
		}
	}
}

func TestVerdictOfACutTextIsAWholeLabelOrNone(t *testing.T) {
	t.Parallel()
	labels := config.Grade{Labels: []string{"Yes", "no", "C", "C++", "D+", "d"}, Passing: []string{"yes", "d+"}}
	extracting := labels
	extracting.Extract = `Label: (\S+)`
	unparseable := grade.Missing(grade.Unparseable)
	for name, c := range map[string]struct {
		grader config.Grade
		text   string
		want   grade.Score
	}{
		"a number":               {config.Grade{Range: []float64{0, 10}}, "1", unparseable},
		"an extracted number":    {config.Grade{Range: []float64{0, 10}, Extract: `\d+`}, "10 of 10? No", unparseable},
		"a label":                {labels, " yes.", grade.Score{Value: 1}},
		"a label that fails":     {labels, "NO", grade.Score{}},
		"a part of a label":      {labels, "ye", unparseable},
		"more than a label":      {labels, "yes it", unparseable},
		"nothing":                {labels, "", unparseable},
		"it may go on":           {labels, "C", unparseable},
		"it may go on, reversed": {labels, "D", unparseable},
		"the longer label":       {labels, "D+", grade.Score{Value: 1}},
		"an extracted label":     {extracting, "Label: yes", unparseable},
	} {
		read, err := NewVerdict(c.grader)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(c.text, true); got != c.want {
			t.Errorf("%s: %q has %+v, want %+v", name, c.text, got, c.want)
		}
	}
}
