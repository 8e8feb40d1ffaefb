package jsonschema

import (
	"strings"
	"testing"
)

func nested(n int) string { return strings.Repeat(`{"not":`, n) + "{}" + strings.Repeat("}", n) }

func TestSchemasThatCanNotBeUsedAreRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, want string }{
		"no JSON":              {`{"type":`, "is not valid JSON"},
		"a type that is none":  {`{"type":"text"}`, "at '/type': value must be one of"},
		"a broken pattern":     {`{"pattern":"(("}`, "at '/pattern'"},
		"a file":               {`{"$ref":"file:///etc/passwd"}`, "refers to file:///etc/passwd"},
		"a web page":           {`{"$ref":"https://example.com/schema.json"}`, "copy that schema into $defs"},
		"its sibling":          {`{"$ref":"other.json"}`, "other.json"},
		"a missing definition": {`{"$ref":"#/$defs/x"}`, "$defs/x"},
		"a huge exponent":      {`{"minLength":1e999999}`, "an exponent beyond 400"},
		"many digits":          {`{"enum":[` + strings.Repeat("9", 401) + `]}`, "more than 400 digits"},
		"deep nesting":         {nested(2300), "nested more than 64 deep"},
	} {
		_, err := Compile(c.schema)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAnswersAreAcceptedBySchemasWithDefinitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema, answer string
		want           bool
	}{
		{`{"$defs":{"n":{"minimum":2}},"items":{"$ref":"#/$defs/n"}}`, `[2,3]`, true},
		{`{"$defs":{"n":{"minimum":2}},"items":{"$ref":"#/$defs/n"}}`, `[2,1]`, false},
		{`{"properties":{"next":{"$ref":"#"}},"type":"object"}`, `{"next":{"next":{}}}`, true},
		{`{"properties":{"next":{"$ref":"#"}},"type":"object"}`, `{"next":{"next":1}}`, false},
		{nested(63), `{}`, false},
		{`{"minimum":1e400}`, `1e399`, false},
		{`{"minimum":1e400}`, `1e1000001`, false},
		{`{}`, `{`, false},
	} {
		s, err := Compile(c.schema)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Accepts(c.answer); got != c.want {
			t.Errorf("%.60s accepts %s: %v", c.schema, c.answer, got)
		}
	}
}

// A schema that refers to itself alone would be followed for ever.
func TestSchemaThatIsItselfEnds(t *testing.T) {
	t.Parallel()
	if s, err := Compile(`{"$ref":"#"}`); err == nil {
		s.Accepts(`{}`)
	}
}
