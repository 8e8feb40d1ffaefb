package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rollout/shared/config"
	"rollout/shared/grade"
)

// options finds options, such as A or "not spam", in answers.
type options struct {
	names  []string
	word   *regexp.Regexp // an option that stands by itself
	answer *regexp.Regexp // one that "answer" comes before, as in "The answer is (B)."
}

func newOptions(names []string, flags string) options {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	slices.SortFunc(quoted, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // "not spam" before "spam"
	one := "(" + strings.Join(quoted, "|") + `)(?:$|[^\pL\pN])`
	return options{
		names:  names,
		word:   regexp.MustCompile(flags + `(?:^|[^\pL\pN])` + one),
		answer: regexp.MustCompile(`(?i)answer(?:\s+is)?\s*[:=]?[\s*"'(\[{$]*(?:\\(?:boxed|text)\{)*` + one),
	}
}

// index returns the number of the option with that name, upper and lower case
// apart; -1 if no option matches.
func (o options) index(name string) int {
	return slices.IndexFunc(o.names, func(n string) bool { return strings.EqualFold(n, name) })
}

// mentioned returns the options that stand in the text by themselves, each once.
func (o options) mentioned(text string) (found []int) {
	for len(text) > 0 {
		m := o.word.FindStringSubmatchIndex(text)
		if m == nil {
			break
		}
		if k := o.index(text[m[2]:m[3]]); !slices.Contains(found, k) {
			found = append(found, k)
		}
		text = text[m[3]:]
	}
	return found
}

// around are characters that people and models put around an option.
const around = " \t\r\n.,:;!?*_\"'`()[]{}$"

// chosen returns the option that an answer chooses; -1 if it chooses none.
//
//  1. The answer is the option, as in "(B)".
//  2. It says so: the last "answer: B" or "the answer is B".
//  3. It begins with the option and a mark, as in "B. Paris".
//  4. Only one option stands in it by itself.
func (o options) chosen(text string) int {
	if k := o.index(strings.Trim(text, around)); k >= 0 {
		return k
	}
	if all := o.answer.FindAllStringSubmatch(text, -1); len(all) > 0 {
		return o.index(all[len(all)-1][1])
	}
	begin := strings.TrimLeft(text, around)
	if m := o.word.FindStringSubmatchIndex(begin); m != nil && m[2] == 0 {
		if rest := strings.TrimLeft(begin[m[3]:], "*_"); rest != "" && strings.Contains(".):", rest[:1]) {
			return o.index(begin[:m[3]])
		}
	}
	if found := o.mentioned(text); len(found) == 1 {
		return found[0]
	}
	return -1
}

// choice scores 1 if the answer chooses the expected option: its name, or its
// number from 0 if no option has that name.
func choice(part extractor, names []string) func(grade.Case) grade.Score {
	if names == nil {
		names = []string{"A", "B", "C", "D"}
	}
	o := newOptions(names, "")
	return func(c grade.Case) grade.Score {
		want, cause := expectations(c.Expected)
		if cause != "" {
			return grade.Missing(cause)
		}
		text, ok := part(c.Answer)
		got := -1
		if ok {
			got = o.chosen(text)
		}
		right := false
		for _, e := range want {
			k := o.index(strings.TrimSpace(e.text))
			if n, err := strconv.Atoi(e.text); k < 0 && e.number && err == nil && n >= 0 && n < len(names) {
				k = n
			}
			if k < 0 {
				return grade.Missing(grade.BadExpected)
			}
			right = right || k == got
		}
		return verdict(right)
	}
}

// label scores 1 if the answer names one label alone, and that is the expected
// one or, without expected values, one that passes.
func label(part extractor, g config.Grade) func(grade.Case) grade.Score {
	o := newOptions(g.Labels, "(?i)")
	var passing []int
	for _, p := range g.Passing {
		passing = append(passing, o.index(p))
	}
	return func(c grade.Case) grade.Score {
		want := passing
		if g.Expected != "" {
			expected, cause := expectations(c.Expected)
			if cause != "" {
				return grade.Missing(cause)
			}
			want = nil
			for _, e := range expected {
				k := o.index(strings.TrimSpace(e.text))
				if k < 0 {
					return grade.Missing(grade.BadExpected)
				}
				want = append(want, k)
			}
		}
		text, ok := part(c.Answer)
		if !ok {
			return verdict(false)
		}
		found := o.mentioned(text)
		return verdict(len(found) == 1 && slices.Contains(want, found[0]))
	}
}
