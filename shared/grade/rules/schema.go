package rules

import (
	"strings"

	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/jsonschema"
)

// schema scores 1 if the answer is JSON that the schema accepts. A fenced block of
// Markdown around the JSON does not count.
func schema(part extractor, text string) (func(grade.Case) grade.Score, error) {
	compiled, err := jsonschema.Compile(text)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "schema")
	}
	return func(c grade.Case) grade.Score {
		answer, ok := part(c.Answer)
		return verdict(ok && compiled.Accepts(unfence(answer)))
	}, nil
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
