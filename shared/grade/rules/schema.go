package rules

import (
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"rollout/shared/fault"
	"rollout/shared/grade"
)

// schema scores 1 if the answer is JSON that the schema accepts. A fenced block
// of Markdown around the JSON does not count.
func schema(part extractor, text string) (func(grade.Case) grade.Score, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "schema")
	}
	const at = "grader:///schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(at, doc); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "schema")
	}
	compiled, err := c.Compile(at)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "schema")
	}
	return func(c grade.Case) grade.Score {
		answer, ok := part(c.Answer)
		if !ok {
			return verdict(false)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(unfence(answer)))
		return verdict(err == nil && compiled.Validate(value) == nil)
	}, nil
}

// noLoader loads no schema: a run's config names no address that is called.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("refers to %s, and only its own definitions can be used: copy that schema into $defs", url)
}

// unfence returns the text inside of a fenced block, or the text if it has no fence.
func unfence(s string) string {
	s = strings.TrimSpace(s)
	inner, ok := strings.CutPrefix(s, "```")
	if !ok {
		return s
	}
	_, inner, _ = strings.Cut(inner, "\n") // after the name of the language
	inner, ok = strings.CutSuffix(inner, "```")
	if !ok {
		return s
	}
	return inner
}
