package rollout

import (
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
)

const verdictSchema = `{"type":"object","required":["verdict"],"properties":{"verdict":{},"why":{"type":"string"}}}`

func TestVerdictIsReadFromTheAnswer(t *testing.T) {
	t.Parallel()
	word := config.Answer{Pattern: `(?i)verdict: *([a-z]+)`}
	listed := config.Answer{Pattern: word.Pattern, Verdicts: []string{"Refund", "refuse"}}
	anyCase := listed
	anyCase.IgnoreCase = true
	object := config.Answer{Schema: verdictSchema, Member: "verdict"}
	deep := config.Answer{Schema: `{}`, Member: "a.b"}
	const none = "\x00"
	for _, c := range []struct {
		name         string
		format       config.Answer
		answer, want string
	}{
		{"the whole text without a format", config.Answer{}, " yes\n", "yes"},
		{"an empty text", config.Answer{}, " \n ", none},
		{"the group of the pattern", word, "Verdict: refund", "refund"},
		{"the last match counts", word, "verdict: refuse? No.\nVerdict: refund", "refund"},
		{"no match", word, "I would refund it", none},
		{"a pattern without a group", config.Answer{Pattern: `yes|no`}, "no, yes", "yes"},
		{"the first of two groups", config.Answer{Pattern: `(a)|(b)`}, "b", none},
		{"a match of nothing", config.Answer{Pattern: `x*`}, "yyy", none},
		{"a verdict of the list", listed, "verdict: Refund", "Refund"},
		{"a verdict in another case", listed, "verdict: refund", none},
		{"case does not count", anyCase, "VERDICT: REFUND", "refund"},
		{"a verdict outside the list", anyCase, "verdict: maybe", none},
		{"the member of an object", object, ` {"verdict": " refund "} `, "refund"},
		{"a number", object, `{"verdict": 1.0}`, "1.0"},
		{"a boolean", object, `{"verdict": true}`, "true"},
		{"null is no verdict", object, `{"verdict": null}`, none},
		{"an object as the verdict", object, `{"verdict": {"x": "refund"}}`, none},
		{"a list as the verdict", object, `{"verdict": ["refund"]}`, none},
		{"no object", object, `refund`, none},
		{"text around the object", object, "Here: {\"verdict\": \"refund\"}", none},
		{"an object that the schema refuses", object, `{"verdict": "refund", "why": 7}`, none},
		{"an object without the verdict", object, `{"why": "x"}`, none},
		{"two objects", object, `{"verdict": "refund"}{"verdict": "refuse"}`, none},
		{"a member of a member", deep, `{"a": {"b": "x"}}`, "x"},
		{"a path into nothing", deep, `{"a": "b"}`, none},
		{"a verdict of the largest size", config.Answer{}, strings.Repeat("v", maxVerdict), strings.Repeat("v", maxVerdict)},
		{"a longer verdict", config.Answer{}, strings.Repeat("v", maxVerdict+1), none},
		{"a long text", word, strings.Repeat("verdict ", 1<<20/8) + "verdict: x", "x"},
		{"the most matches", config.Answer{Pattern: "a|b"}, strings.Repeat("a", maxMatches-1) + "b", "b"},
		{"more matches", config.Answer{Pattern: "a|b"}, strings.Repeat("a", maxMatches) + "b", none},
		{"a deep object", object, strings.Repeat(`{"verdict":`, 100_000) + "1" + strings.Repeat("}", 100_000), none},
		{"text that is not UTF-8", config.Answer{Pattern: `v(.)`}, "v\xff", "\xff"},
	} {
		p, err := NewParser(c.format)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, ok := p.Verdict(c.answer)
		if !ok {
			got = none
		}
		if got != c.want {
			t.Errorf("%s: %.80q, want %.80q", c.name, got, c.want)
		}
	}
}

func TestParserRefusesFormatsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, f := range []config.Answer{{Pattern: "("}, {Schema: "{"}, {Schema: `{"type":7}`, Member: "x"}} {
		if _, err := NewParser(f); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func FuzzVerdict(f *testing.F) {
	f.Add(`{"verdict":"refund"}`)
	f.Add("verdict: refund\nVerdict: \xed\xa0\x80")
	var parsers []Parser
	for _, a := range []config.Answer{{}, {Pattern: `(?i)verdict: *(\S+)`, IgnoreCase: true},
		{Schema: verdictSchema, Member: "verdict"}} {
		p, err := NewParser(a)
		if err != nil {
			f.Fatal(err)
		}
		parsers = append(parsers, p)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		for _, p := range parsers {
			v, ok := p.Verdict(answer)
			if ok != (v != "") || len(v) > maxVerdict || p.Normalize(v) != v {
				t.Fatalf("the verdict of %q is %q, %v", answer, v, ok)
			}
		}
	})
}
