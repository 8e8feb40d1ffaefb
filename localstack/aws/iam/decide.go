package iam

import (
	"fmt"
	"slices"
)

// Request is what somebody wants to do.
type Request struct {
	Action   string
	Resource string
	Context  map[string][]string // condition keys; what is absent has none
}

// Check says why an Ask may not be done; nil if it may.
func (p Policy) Check(a Request) error {
	allowed := false
	for _, s := range p {
		if !s.about(a) {
			continue
		}
		if s.deny {
			return fmt.Errorf("%s of %s is forbidden by %s", a.Action, a.Resource, s.id)
		}
		allowed = true
	}
	if !allowed {
		return fmt.Errorf("nothing allows %s of %s with %v", a.Action, a.Resource, a.Context)
	}
	return nil
}

func (s statement) about(a Request) bool {
	if !slices.Contains(s.actions, a.Action) || !slices.ContainsFunc(s.resources, func(r string) bool { return like(a.Resource, r) }) {
		return false
	}
	for operator, keys := range s.conditions {
		for key, values := range keys {
			got, there := a.Context[key]
			if !operators[operator](got, there, values) {
				return false
			}
		}
	}
	return true
}

// operators are those of conditions: whether what a request has fits the
// values.
var operators = map[string]func(got []string, there bool, values []string) bool{
	"StringLike":         func(got []string, there bool, values []string) bool { return there && anyLike(got, values) },
	"StringLikeIfExists": func(got []string, there bool, values []string) bool { return !there || anyLike(got, values) },
	"ForAllValues:StringLike": func(got []string, _ bool, values []string) bool {
		return !slices.ContainsFunc(got, func(g string) bool { return !anyLike([]string{g}, values) })
	},
	"Null": func(_ []string, there bool, values []string) bool { return slices.Contains(values, fmt.Sprint(!there)) },
	"Bool": func(got []string, there bool, values []string) bool { return there && slices.Equal(got, values) },
}

func anyLike(got, patterns []string) bool {
	return slices.ContainsFunc(got, func(g string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return like(g, p) })
	})
}

// like reports whether text fits a pattern, in which * is any characters and ?
// is one.
func like(text, pattern string) bool {
	for pattern != "" {
		switch {
		case pattern[0] == '*':
			for from := len(text); from >= 0; from-- {
				if like(text[from:], pattern[1:]) {
					return true
				}
			}
			return false
		case text == "" || pattern[0] != '?' && pattern[0] != text[0]:
			return false
		}
		text, pattern = text[1:], pattern[1:]
	}
	return text == ""
}
