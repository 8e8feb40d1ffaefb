package rules

import (
	"regexp"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// NewVerdict returns a function that reads the score from what a judge said: a number in
// the grader's range, or one of its labels. The whole text must be that, or the part that
// extract matches, apart from white space and punctuation around it. Anything else has
// the cause Unparseable: a number that is found somewhere in a text may be another one.
func NewVerdict(g config.Grade) (func(text string) grade.Score, error) {
	part, err := newExtractor(g.Extract, g.Pick)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "grader " + g.Name, Err: err}
	}
	read := inRange(g)
	if g.Range == nil {
		read = labelled(g)
	}
	return func(text string) grade.Score {
		text, ok := part(text)
		if ok {
			var x float64
			if x, ok = read(bare(text)); ok {
				return grade.Score{Value: x}
			}
		}
		return grade.Missing(grade.Unparseable)
	}, nil
}

// bare returns a text without the white space and punctuation around it, but for a
// leading decimal point.
func bare(text string) string {
	return strings.TrimRight(strings.TrimLeft(text, strings.ReplaceAll(around, ".", "")), around)
}

// plainNumber matches a whole text that is a number.
var plainNumber = regexp.MustCompile(`^[-+]?(?:\d+(?:\.\d+)?|\.\d+)$`)

// inRange reads a number from the lowest, which scores 0, to the highest, which scores 1.
func inRange(g config.Grade) func(string) (float64, bool) {
	return func(text string) (float64, bool) {
		if !plainNumber.MatchString(text) {
			return 0, false
		}
		x, err := strconv.ParseFloat(text, 64)
		low, high := g.Range[0], g.Range[1]
		if err != nil || x < low || x > high {
			return 0, false
		}
		return (x - low) / (high - low), true
	}
}

// labelled reads a label: it has its own score or, without scores, 1 if it passes.
func labelled(g config.Grade) func(string) (float64, bool) {
	o := newOptions(g.Labels, "(?i)")
	passing := newOptions(g.Passing, "(?i)")
	return func(text string) (float64, bool) {
		k := o.index(text)
		switch {
		case k < 0:
			return 0, false
		case g.LabelScores != nil:
			return g.LabelScores[k], true
		}
		return verdict(passing.index(text) >= 0).Value, true
	}
}
