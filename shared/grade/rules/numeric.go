package rules

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/grade"
)

// numeric scores 1 if the last number of the answer is one of the expected
// numbers, within the tolerance.
func numeric(part extractor, g config.Grade) func(grade.Case) grade.Score {
	return func(c grade.Case) grade.Score {
		want, cause := expectations(c.Expected)
		if cause != "" {
			return grade.Missing(cause)
		}
		text, ok := part(c.Answer)
		got, found := lastNumber(text)
		right := false
		for _, e := range want {
			x, ok := lastNumber(e.text)
			if !ok {
				return grade.Missing(grade.BadExpected)
			}
			right = right || math.Abs(got-x) <= max(g.Tolerance, g.RelativeTolerance*math.Abs(x))
		}
		return verdict(ok && found && right)
	}
}

// numberPattern matches a number with or without thousands separators.
var numberPattern = regexp.MustCompile(
	`[-+−]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?`)

// lastNumber returns the last number in a text, which models write after their
// reasoning. A sign that follows a digit or a letter is a hyphen.
func lastNumber(text string) (float64, bool) {
	all := numberPattern.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return 0, false
	}
	last := all[len(all)-1]
	s := strings.NewReplacer(",", "", "−", "-").Replace(text[last[0]:last[1]])
	if before := last[0] - 1; before >= 0 && isWordByte(text[before]) {
		s = strings.TrimLeft(s, "+-")
	}
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil // a number that is too large does not count
}

func isWordByte(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}
