package rules_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/gradetest"
	"rollout/shared/grade/rules"
)

// expecting is a grader of the kind whose rows have the expected value.
func expecting(kind string, edit ...func(*config.Grade)) config.Grade {
	g := config.Grade{Name: "g", Kind: kind, Expected: "answer"}
	for _, f := range edit {
		f(&g)
	}
	return g
}

func extract(expr, pick string) func(*config.Grade) {
	return func(g *config.Grade) { g.Extract, g.Pick = expr, pick }
}

func ignoreCase(g *config.Grade) { g.IgnoreCase = true }

func tolerance(absolute, relative float64) func(*config.Grade) {
	return func(g *config.Grade) { g.Tolerance, g.RelativeTolerance = absolute, relative }
}

func choices(names ...string) func(*config.Grade) {
	return func(g *config.Grade) { g.Choices = names }
}

func labels(names ...string) func(*config.Grade) {
	return func(g *config.Grade) { g.Labels = names }
}

// passing is a grader whose rows have no expected label.
func passing(pass []string, names ...string) config.Grade {
	return config.Grade{Name: "g", Kind: config.GradeLabel, Labels: names, Passing: pass}
}

func matching(expr string) config.Grade {
	return config.Grade{Name: "g", Kind: config.GradeRegex, Pattern: expr}
}

func schema(text string) config.Grade {
	return config.Grade{Name: "g", Kind: config.GradeSchema, Schema: text}
}

func score(x float64) grade.Score { return grade.Score{Value: x} }

// TestGraders has a case a row: the expected value as JSON, "" for none.
func TestGraders(t *testing.T) {
	t.Parallel()
	right, wrong := score(1), score(0)
	none, bad := grade.Missing(grade.NoExpected), grade.Missing(grade.BadExpected)
	person := schema(`{"type":"object","properties":{"age":{"type":"integer","minimum":0}},"required":["age"]}`)
	price := schema(`{"properties":{"price":{"type":"number","minimum":0}}}`)
	spam := expecting(config.GradeLabel, labels("spam", "not spam"))
	for name, c := range map[string]struct {
		grader           config.Grade
		answer, expected string
		want             grade.Score
	}{
		"exact, equal":                 {expecting("exact"), "Paris", `"Paris"`, right},
		"exact, white space around":    {expecting("exact"), "\n Paris \n", `" Paris"`, right},
		"exact, white space within":    {expecting("exact"), "Par is", `"Paris"`, wrong},
		"exact, other case":            {expecting("exact"), "paris", `"Paris"`, wrong},
		"exact, other case ignored":    {expecting("exact", ignoreCase), "ÉCOLE", `"école"`, right},
		"exact, part of a sentence":    {expecting("exact"), "It is Paris.", `"Paris"`, wrong},
		"exact, one of a list":         {expecting("exact"), "Lutetia", `["Paris","Lutetia"]`, right},
		"exact, none of a list":        {expecting("exact"), "Rome", `["Paris","Lutetia"]`, wrong},
		"exact, a number as text":      {expecting("exact"), "42", `42`, right},
		"exact, a boolean as text":     {expecting("exact"), "true", `true`, right},
		"exact, an escaped text":       {expecting("exact"), "a\"é", `"a\"\u00e9"`, right},
		"exact, no expected value":     {expecting("exact"), "Paris", ``, none},
		"exact, an empty list":         {expecting("exact"), "Paris", `[]`, none},
		"exact, an object":             {expecting("exact"), "Paris", `{"a":1}`, bad},
		"exact, a list with a list":    {expecting("exact"), "Paris", `["Paris",["x"]]`, bad},
		"exact, the last match":        {expecting("exact", extract(`<a>(.*?)</`, "")), "<a>1</a><a>2</a>", `"2"`, right},
		"exact, the first match":       {expecting("exact", extract(`<a>(.*?)<`, "first")), "<a>1</a><a>2</a>", `"1"`, right},
		"exact, a match without group": {expecting("exact", extract(`\d+`, "")), "it is 42", `"42"`, right},
		"exact, nothing to extract":    {expecting("exact", extract(`<a>(.*?)</a>`, "")), "", `""`, wrong},

		"regex, a match":             {matching(`\bParis\b`), "It is Paris.", ``, right},
		"regex, no match":            {matching(`^Paris$`), "It is Paris.", ``, wrong},
		"regex, of the row":          {expecting("regex"), "abc", `"^a.c$"`, right},
		"regex, one of the row":      {expecting("regex"), "abc", `["^x","c$"]`, right},
		"regex, none of the row":     {expecting("regex"), "abc", `["^x","y$"]`, wrong},
		"regex, case ignored":        {expecting("regex", ignoreCase), "ABC", `"abc"`, right},
		"regex, invalid in the row":  {expecting("regex"), "abc", `"("`, bad},
		"regex, too long in the row": {expecting("regex"), "abc", `"` + strings.Repeat("a?", 1025) + `"`, bad},
		"regex, missing in the row":  {expecting("regex"), "abc", ``, none},
		"regex, a group that nests":  {matching(`(a+)+$`), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", ``, wrong},
		"regex, an object in a list": {expecting("regex"), "abc", `[{}]`, bad},
		"regex, 32 in the row":       {expecting("regex"), "abc", `["c"` + strings.Repeat(`,"b"`, 31) + `]`, right},
		"regex, too many in the row": {expecting("regex"), "abc", `["c"` + strings.Repeat(`,"b"`, 32) + `]`, bad},

		"numeric, equal":                  {expecting("numeric"), "42", `42`, right},
		"numeric, the last number":        {expecting("numeric"), "First 3, then 4. So it is **42**.", `42`, right},
		"numeric, not the first":          {expecting("numeric"), "42 and then 7", `42`, wrong},
		"numeric, thousands":              {expecting("numeric"), "$1,234,567.50", `1234567.5`, right},
		"numeric, expected text":          {expecting("numeric"), "1200", `"#### 1,200"`, right},
		"numeric, negative":               {expecting("numeric"), "It is -5.", `-5`, right},
		"numeric, minus sign":             {expecting("numeric"), "It is −5.", `-5`, right},
		"numeric, a range is no sign":     {expecting("numeric"), "3-4", `4`, right},
		"numeric, exponent":               {expecting("numeric"), "6.02e23", `6.02E+23`, right},
		"numeric, boxed":                  {expecting("numeric"), `so \boxed{12}`, `12`, right},
		"numeric, within the tolerance":   {expecting("numeric", tolerance(0.01, 0)), "3.14", `3.1415`, right},
		"numeric, beyond the tolerance":   {expecting("numeric", tolerance(0.001, 0)), "3.14", `3.1415`, wrong},
		"numeric, within a share":         {expecting("numeric", tolerance(0, 0.01)), "101", `100`, right},
		"numeric, beyond a share":         {expecting("numeric", tolerance(0, 0.001)), "101", `100`, wrong},
		"numeric, one of a list":          {expecting("numeric"), "2", `[1,2]`, right},
		"numeric, no number":              {expecting("numeric"), "I don't know", `42`, wrong},
		"numeric, too large to be one":    {expecting("numeric"), "1e999", `42`, wrong},
		"numeric, no number, zero wanted": {expecting("numeric"), "none", `0`, wrong},
		"numeric, expected is no number":  {expecting("numeric"), "42", `"many"`, bad},
		"numeric, extracted":              {expecting("numeric", extract(`answer: (\S+)`, "")), "answer: 5 of 9", `5`, right},
		"numeric, nothing extracted":      {expecting("numeric", extract(`answer: (\S+)`, "")), "5", `5`, wrong},

		"choice, the letter":              {expecting("choice"), "B", `"B"`, right},
		"choice, in brackets":             {expecting("choice"), " (b). ", `"B"`, right},
		"choice, another one":             {expecting("choice"), "C", `"B"`, wrong},
		"choice, said at the end":         {expecting("choice"), "A is a bird. The answer is B", `"B"`, right},
		"choice, said with a colon":       {expecting("choice"), "Answer: (C)\nbecause D is wrong", `"C"`, right},
		"choice, said in bold":            {expecting("choice"), "**Answer:** **D**", `"D"`, right},
		"choice, said twice":              {expecting("choice"), "Answer: A. No, the answer is D.", `"D"`, right},
		"choice, begins with it":          {expecting("choice"), "B) Paris, not A", `"B"`, right},
		"choice, the only one":            {expecting("choice"), "I would take B here", `"B"`, right},
		"choice, several":                 {expecting("choice"), "either B or C", `"B"`, wrong},
		"choice, none":                    {expecting("choice"), "Paris", `"B"`, wrong},
		"choice, a word with the letter":  {expecting("choice"), "Big", `"B"`, wrong},
		"choice, number from 0":           {expecting("choice"), "C", `2`, right},
		"choice, number of another":       {expecting("choice"), "B", `2`, wrong},
		"choice, number out of range":     {expecting("choice"), "B", `4`, bad},
		"choice, options that are digits": {expecting("choice", choices("1", "2", "3")), "2", `2`, right},
		"choice, options that are words":  {expecting("choice", choices("yes", "no")), "No, it does not.", `"no"`, wrong},
		"choice, a word alone":            {expecting("choice", choices("yes", "no")), "no.", `"no"`, right},
		"choice, unknown option":          {expecting("choice"), "B", `"E"`, bad},
		"choice, no expected value":       {expecting("choice"), "B", ``, none},

		"label, alone":               {spam, "spam", `"spam"`, right},
		"label, in a sentence":       {spam, "This mail is SPAM.", `"spam"`, right},
		"label, the longer one":      {spam, "This is not spam.", `"not spam"`, right},
		"label, not the shorter one": {spam, "This is not spam.", `"spam"`, wrong},
		"label, both":                {spam, "spam or not spam", `"spam"`, wrong},
		"label, twice the same":      {spam, "spam, SPAM, spam", `"Spam"`, right},
		"label, none":                {spam, "ham", `"spam"`, wrong},
		"label, unknown expected":    {spam, "spam", `"ham"`, bad},
		"label, no expected value":   {spam, "spam", ``, none},
		"label, passing":             {passing([]string{"good"}, "good", "bad"), "Good!", ``, right},
		"label, not passing":         {passing([]string{"good"}, "good", "bad"), "bad", ``, wrong},

		"json_schema, accepted":      {person, `{"age": 3}`, ``, right},
		"json_schema, wrong type":    {person, `{"age": "3"}`, ``, wrong},
		"json_schema, missing":       {person, `{}`, ``, wrong},
		"json_schema, no JSON":       {person, `age: 3`, ``, wrong},
		"json_schema, text after it": {person, `{"age": 3} ok?`, ``, wrong},
		"json_schema, fenced":        {person, "```json\n{\"age\": 3}\n```", ``, right},
		"json_schema, half a fence":  {person, "```json\n{\"age\": 3}", ``, wrong},
		"json_schema, large number":  {person, `{"age": 1e400}`, ``, right},
		"json_schema, huge exponent": {price, `{"price": 1E+1000001}`, ``, wrong},
		"json_schema, tiny number":   {price, `{"price": 1e-99999999999}`, ``, wrong},
		"json_schema, many digits":   {person, `{"age": ` + strings.Repeat("9", 401) + `}`, ``, wrong},
		"json_schema, huge in list":  {price, `{"price": 3, "more": [{"x": 1e1000001}]}`, ``, wrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := rules.New(c.grader)
			if err != nil {
				t.Fatal(err)
			}
			var expected json.RawMessage
			if c.expected != "" {
				expected = json.RawMessage(c.expected)
			}
			if got := g.Grade(t.Context(), []grade.Case{{Answer: c.answer, Expected: expected}}); got[0] != c.want {
				t.Errorf("the answer %q, expected %s: %+v, want %+v", c.answer, c.expected, got[0], c.want)
			}
		})
	}
}

func TestGradersKeepThePort(t *testing.T) {
	t.Parallel()
	expected := json.RawMessage(`"B"`)
	for kind, g := range map[string]config.Grade{
		"exact":  expecting(config.GradeExact),
		"choice": expecting(config.GradeChoice),
		"regex":  matching("^B$"),
		"schema": schema(`{"const":"B"}`),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			grader, err := rules.New(g)
			if err != nil {
				t.Fatal(err)
			}
			f := gradetest.Fixture{Grader: grader, Right: grade.Case{Answer: "B", Expected: expected},
				Wrong: grade.Case{Answer: "A", Expected: expected}}
			if kind == "schema" {
				f.Right.Answer = `"B"`
			}
			gradetest.Run(t, f)
		})
	}
}

func TestNewRefusesWhatCannotGrade(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]config.Grade{
		"a pattern that does not compile":     matching("("),
		"an extract that does not compile":    expecting("exact", extract("(", "")),
		"a schema that is none":               schema(`{"type":"text"}`),
		"a schema that refers to a file":      schema(`{"$ref":"file:///etc/passwd"}`),
		"a schema that refers to a web page":  schema(`{"$ref":"https://example.com/schema.json"}`),
		"a schema that refers to its sibling": schema(`{"$ref":"other.json"}`),
		"a kind that needs a service":         {Name: "g", Kind: config.GradeHTTP, Service: "s"},
		"an unknown kind":                     {Name: "g", Kind: "guess"},
	} {
		if _, err := rules.New(g); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: New returned %v, want Invalid", name, err)
		}
	}
}
