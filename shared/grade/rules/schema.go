package rules

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"rollout/shared/fault"
	"rollout/shared/grade"
)

// schema scores 1 if the answer is JSON that the schema accepts. A fenced block
// of Markdown around the JSON does not count. JSON with a number beyond maxExponent or
// maxNumber scores 0.
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
		return verdict(err == nil && isComputable(value) && compiled.Validate(value) == nil)
	}, nil
}

// Bounds of the numbers of an answer. The validator computes with exact fractions: a
// number such as 1e1000000 takes it long, and with a larger exponent it panics.
const (
	maxNumber   = 400 // bytes
	maxExponent = 400
)

// isComputable reports whether all numbers of a decoded value are within the bounds.
func isComputable(value any) bool {
	switch v := value.(type) {
	case json.Number:
		_, exponent, scientific := strings.Cut(strings.ToLower(v.String()), "e")
		if !scientific {
			return len(v) <= maxNumber
		}
		n, err := strconv.Atoi(exponent)
		return len(v) <= maxNumber && err == nil && -maxExponent <= n && n <= maxExponent
	case []any:
		for _, element := range v {
			if !isComputable(element) {
				return false
			}
		}
	case map[string]any:
		for _, member := range v {
			if !isComputable(member) {
				return false
			}
		}
	}
	return true
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
