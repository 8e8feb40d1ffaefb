package rules

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// Verdict reads the score from what a judge said. Cut says that the text was cut before
// the judge ended it.
type Verdict func(text string, cut bool) grade.Score

// NewVerdict returns the Verdict of a grader: a number in its range, or one of its
// labels. The whole text must be that, or the part that extract matches, apart from white
// space and punctuation around it. Anything else has the cause Unparseable: a number that
// is found somewhere in a text may be another one.
//
// The same holds for a text that was cut. Its end may be a part of a number ("1" of
// "10"), and its last match a quotation. Only a whole text that is a label counts, if no
// other label begins with it: judges of labels often have one token.
func NewVerdict(g config.Grade) (Verdict, error) {
	part, err := newExtractor(g.Extract, g.Pick)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "grader " + g.Name, Err: err}
	}
	read := inRange(g)
	if g.Range == nil {
		read = labelled(g)
	}
	return func(text string, cut bool) grade.Score {
		text, ok := part(text)
		if ok && (!cut || g.Extract == "" && isWholeLabel(g.Labels, bare(text))) {
			var x float64
			if x, ok = read(bare(text)); ok {
				return grade.Score{Value: x}
			}
		}
		return grade.Missing(grade.Unparseable)
	}, nil
}

// isWholeLabel reports whether the text is a label, and not the beginning of another one.
func isWholeLabel(labels []string, text string) bool {
	begins := func(label string) bool {
		return len(label) >= len(text) && strings.EqualFold(label[:len(text)], text)
	}
	k := slices.IndexFunc(labels, begins)
	return k >= 0 && len(labels[k]) == len(text) && !slices.ContainsFunc(labels[k+1:], begins)
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
