package iam

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// condition is an expression of a grant, in the part of CEL that infra/gcp uses: one or
// more alternatives, each of one or more comparisons of resource.name that must all hold.
//
//	resource.name.startsWith("projects/_/buckets/b/objects/work/") || resource.name == "…"
//	resource.name.startsWith("…/runs/") && resource.name.endsWith("/errors.jsonl")
type condition [][]comparison

// comparison compares the name of a resource with a text.
type comparison struct {
	text  string
	holds func(name, text string) bool
}

// forms are the comparisons that are known. Their texts are in quotes.
var forms = []struct {
	pattern *regexp.Regexp
	holds   func(name, text string) bool
}{
	{regexp.MustCompile(`^resource\.name\.startsWith\("([^"\\]*)"\)$`), strings.HasPrefix},
	{regexp.MustCompile(`^resource\.name\.endsWith\("([^"\\]*)"\)$`), strings.HasSuffix},
	{regexp.MustCompile(`^resource\.name == "([^"\\]*)"$`), func(name, text string) bool { return name == text }},
}

// mostOperators is how many logical operators Google Cloud takes in a condition.
const mostOperators = 12

// parseCondition reads an expression. An empty one always holds. Everything else that CEL
// knows is an error, so that a test notices when a plan begins to use it.
func parseCondition(expression string) (c condition, err error) {
	if expression == "" {
		return nil, nil
	}
	if n := strings.Count(expression, " || ") + strings.Count(expression, " && "); n > mostOperators {
		return nil, fmt.Errorf("the condition %q has %d logical operators, Google Cloud takes %d", expression, n,
			mostOperators)
	}
	for alternative := range strings.SplitSeq(expression, " || ") {
		var all []comparison
		for part := range strings.SplitSeq(alternative, " && ") {
			at, ok := parseComparison(part)
			if !ok {
				return nil, fmt.Errorf("the condition %q is not supported", part)
			}
			all = append(all, at)
		}
		c = append(c, all)
	}
	return c, nil
}

func parseComparison(part string) (comparison, bool) {
	for _, f := range forms {
		if m := f.pattern.FindStringSubmatch(part); m != nil {
			return comparison{m[1], f.holds}, true
		}
	}
	return comparison{}, false
}

// holds reports whether a resource fulfills the condition.
func (c condition) holds(resource string) bool {
	for _, all := range c {
		if !slices.ContainsFunc(all, func(at comparison) bool { return !at.holds(resource, at.text) }) {
			return true
		}
	}
	return len(c) == 0
}
