// Package jsonschema compiles the JSON schemas that users write, and checks answers of models by them.
//
// A schema is a text of a config, an answer a text of a model: both may be hostile. The package bounds their nesting
// and their numbers, and loads no schema from a file or an address.
package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of schemas and answers. The validator computes with exact fractions: a number such as 1e1000000 takes it long,
// and with a larger exponent it panics. A schema that is nested 500 deep takes it 13 s.
const (
	maxNumber   = 400 // bytes
	maxExponent = 400
	maxDepth    = 64 // of a schema
)

// Schema is a compiled schema. It is safe for concurrent use.
type Schema struct{ compiled *validator.Schema }

// Compile compiles a schema. Its error is one line.
func Compile(text string) (*Schema, error) {
	doc, err := validator.UnmarshalJSON(strings.NewReader(text))
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	case !isComputable(doc):
		return nil, fmt.Errorf("has a number of more than %d digits, or an exponent beyond %d", maxNumber, maxExponent)
	case depthOf(doc) > maxDepth:
		return nil, fmt.Errorf("is nested more than %d deep: move parts into $defs", maxDepth)
	}
	const at = "schema.json"
	c := validator.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(at, doc); err != nil {
		return nil, firstCause(err)
	}
	compiled, err := c.Compile(at)
	if err != nil {
		return nil, firstCause(err)
	}
	return &Schema{compiled}, nil
}

// firstCause returns the first innermost cause of what the validator says: a line for each, indented below what it
// causes.
func firstCause(err error) error {
	lines := strings.Split(err.Error(), "\n")
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	n := min(1, len(lines)-1)
	for n+1 < len(lines) && indent(lines[n+1]) > indent(lines[n]) {
		n++
	}
	return errors.New(strings.TrimLeft(lines[n], "- "))
}

// Accepts reports whether an answer is JSON that the schema accepts. JSON with a number beyond the bounds is not
// accepted.
func (s *Schema) Accepts(answer string) bool {
	value, err := validator.UnmarshalJSON(strings.NewReader(answer))
	return err == nil && isComputable(value) && s.compiled.Validate(value) == nil
}

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

// depthOf returns how many lists and objects of a decoded value are in one another.
func depthOf(value any) (depth int) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			depth = max(depth, depthOf(element))
		}
	case map[string]any:
		for _, member := range v {
			depth = max(depth, depthOf(member))
		}
	default:
		return 0
	}
	return depth + 1
}

// noLoader loads no schema: a run's config names no address that is called.
type noLoader struct{}

// Load implements validator.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("refers to %s, and only its own definitions can be used: copy that schema into $defs", url)
}
