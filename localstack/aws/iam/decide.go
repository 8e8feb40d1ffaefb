package iam

import (
	"fmt"
	"slices"
)

// Request is an action on a resource.
type Request struct {
	Action   string
	Resource string
	Context  map[string][]string // condition keys
}

// Check returns nil if the policy allows the request, else the reason.
func (p Policy) Check(r Request) error {
	allowed := false
	for _, s := range p {
		if !s.matches(r) {
			continue
		}
		if s.deny {
			return fmt.Errorf("%s of %s is forbidden by %s", r.Action, r.Resource, s.id)
		}
		allowed = true
	}
	if !allowed {
		return fmt.Errorf("no statement allows %s of %s with %v", r.Action, r.Resource, r.Context)
	}
	return nil
}

// Actions returns the actions that the policy allows on some resource, sorted.
func (p Policy) Actions() (actions []string) {
	for _, s := range p {
		if !s.deny {
			actions = append(actions, s.actions...)
		}
	}
	slices.Sort(actions)
	return slices.Compact(actions)
}

// matches reports whether the statement applies to the request.
func (s statement) matches(r Request) bool {
	if !slices.Contains(s.actions, r.Action) ||
		!slices.ContainsFunc(s.resources, func(pattern string) bool { return like(r.Resource, pattern) }) {
		return false
	}
	for operator, keys := range s.conditions {
		for key, values := range keys {
			got, present := r.Context[key]
			if !operators[operator](got, present, values) {
				return false
			}
		}
	}
	return true
}

// operators are the condition operators. Each reports whether the request's values
// match those of the condition.
var operators = map[string]func(got []string, present bool, values []string) bool{
	"StringLike": func(got []string, present bool, values []string) bool {
		return present &&
			anyLike(got, values)
	},
	"StringLikeIfExists": func(got []string, present bool, values []string) bool {
		return !present ||
			anyLike(got, values)
	},
	"ForAllValues:StringLike": func(got []string, _ bool, values []string) bool {
		return !slices.ContainsFunc(got, func(g string) bool { return !anyLike([]string{g}, values) })
	},
	"Null": func(_ []string, present bool, values []string) bool {
		return slices.Contains(values, fmt.Sprint(!present))
	},
	"Bool": func(got []string, present bool, values []string) bool { return present && slices.Equal(got, values) },
}

func anyLike(got, patterns []string) bool {
	return slices.ContainsFunc(got, func(g string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return like(g, p) })
	})
}

// like reports whether text matches a pattern, in which * stands for any characters
// and ? for one.
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
