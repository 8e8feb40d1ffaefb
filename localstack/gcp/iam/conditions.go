package iam

import (
	"fmt"
	"regexp"
	"strings"
)

// condition is an expression of a grant, in the part of CEL that infra/gcp uses: one or
// more comparisons of resource.name, of which one must hold.
//
//	resource.name.startsWith("projects/_/buckets/b/objects/work/") || resource.name == "…"
type condition []comparison

// comparison compares the name of a resource.
type comparison struct {
	text   string
	prefix bool // whether the name must begin with the text, or else be it
}

var (
	startsWith = regexp.MustCompile(`^resource\.name\.startsWith\("([^"\\]*)"\)$`)
	equals     = regexp.MustCompile(`^resource\.name == "([^"\\]*)"$`)
)

// parseCondition reads an expression. An empty one always holds. Everything else that CEL
// knows is an error, so that a test notices when a plan begins to use it.
func parseCondition(expression string) (c condition, err error) {
	if expression == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(expression, " || ") {
		if m := startsWith.FindStringSubmatch(part); m != nil {
			c = append(c, comparison{m[1], true})
		} else if m := equals.FindStringSubmatch(part); m != nil {
			c = append(c, comparison{m[1], false})
		} else {
			return nil, fmt.Errorf("the condition %q is not supported", part)
		}
	}
	return c, nil
}

// holds reports whether a resource fulfills the condition.
func (c condition) holds(resource string) bool {
	for _, at := range c {
		if resource == at.text || at.prefix && strings.HasPrefix(resource, at.text) {
			return true
		}
	}
	return len(c) == 0
}
