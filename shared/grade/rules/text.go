package rules

import (
	"regexp"
	"slices"
	"strings"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// extractor returns the part of an answer that is compared, and false if the
// answer has none.
type extractor func(answer string) (part string, ok bool)

// newExtractor returns the extractor of a regular expression: the first group of
// its match, or the whole match if it has no group. "" extracts the whole answer.
func newExtractor(expr, pick string) (extractor, error) {
	if expr == "" {
		return func(answer string) (string, bool) { return answer, true }, nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "extract")
	}
	group := min(1, re.NumSubexp())
	return func(answer string) (string, bool) {
		var m []string
		if pick == config.PickFirst {
			m = re.FindStringSubmatch(answer)
		} else if all := re.FindAllStringSubmatch(answer, -1); len(all) > 0 {
			m = all[len(all)-1]
		}
		if m == nil {
			return "", false
		}
		return m[group], true
	}, nil
}

// exact scores 1 if the answer is one of the expected texts, white space around
// both apart.
func exact(part extractor, ignoreCase bool) func(grade.Case) grade.Score {
	same := func(a, b string) bool { return a == b }
	if ignoreCase {
		same = strings.EqualFold
	}
	return func(c grade.Case) grade.Score {
		want, cause := expectations(c.Expected)
		if cause != "" {
			return grade.Missing(cause)
		}
		got, ok := part(c.Answer)
		got = strings.TrimSpace(got)
		return verdict(ok && slices.ContainsFunc(want, func(e expectation) bool {
			return same(got, strings.TrimSpace(e.text))
		}))
	}
}

// Bounds of the regular expressions in a row: bytes of one, and how many. Compiling
// larger ones, or more, would take long.
const (
	maxRowPattern  = 2048
	maxRowPatterns = 32
)

// regex scores 1 if the pattern, or one of those in the row, matches the answer.
func regex(g config.Grade) (func(grade.Case) grade.Score, error) {
	flags := ""
	if g.IgnoreCase {
		flags = "(?i)"
	}
	if g.Pattern != "" {
		re, err := regexp.Compile(flags + g.Pattern)
		if err != nil {
			return nil, fault.WithKind(fault.Invalid, err, "pattern")
		}
		return func(c grade.Case) grade.Score { return verdict(re.MatchString(c.Answer)) }, nil
	}
	return func(c grade.Case) grade.Score {
		want, cause := expectations(c.Expected)
		switch {
		case cause != "":
			return grade.Missing(cause)
		case len(want) > maxRowPatterns:
			return grade.Missing(grade.BadExpected)
		}
		matched := false
		for _, e := range want {
			if len(e.text) > maxRowPattern {
				return grade.Missing(grade.BadExpected)
			}
			re, err := regexp.Compile(flags + e.text)
			if err != nil {
				return grade.Missing(grade.BadExpected)
			}
			matched = matched || re.MatchString(c.Answer)
		}
		return verdict(matched)
	}, nil
}
