package rollout

import (
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

var twoMissions = []config.Mission{{Name: "refunds"}, {Name: "spam"}}

func TestTicketsAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, line                           string
		group, mission, label, content, more string // more is Messages
		rest                                 string
	}{
		{"all members", `{"group_id":"g","mission":"spam","content":"a \"b\"","label":"yes"}`,
			"g", "spam", "yes", `a "b"`, "", `{"group_id":"g","mission":"spam","label":"yes"}`},
		{"numbers and booleans are text", `{"group_id":17,"mission":"spam","content":"c","label":false}`,
			"17", "spam", "false", "c", "", `{"group_id":17,"mission":"spam","label":false}`},
		{"null is a missing member", `{"group_id":"g","mission":"spam","content":"c","label":null,"messages":null}`,
			"g", "spam", "", "c", "", `{"group_id":"g","mission":"spam","label":null}`},
		{"messages in the place of content", `{"group_id":"g","mission":"spam","messages":[ {"role": "user"} ]}`,
			"g", "spam", "", "", `[{"role":"user"}]`, `{"group_id":"g","mission":"spam"}`},
		{"other members are kept as they are written",
			`{"x":1.0,"group_id":"g", "a b" : [1, 2],"mission":"spam","content":"c"}`,
			"g", "spam", "", "c", "", `{"x":1.0,"group_id":"g","a b":[1,2],"mission":"spam"}`},
		{"half of a surrogate pair in the content", `{"group_id":"g","mission":"spam","content":"\ud83d!"}`,
			"g", "spam", "", "\xed\xa0\xbd!", "", `{"group_id":"g","mission":"spam"}`},
		{"names with escapes", `{"group\u005fid":"g","mission":"spam","content":"c"}`,
			"g", "spam", "", "c", "", `{"group_id":"g","mission":"spam"}`},
		{"a group of the largest size", `{"group_id":"` + strings.Repeat("g", maxGroup) + `","mission":"spam","content":"c"}`,
			strings.Repeat("g", maxGroup), "spam", "", "c", "", `{"group_id":"` + strings.Repeat("g", maxGroup) +
				`","mission":"spam"}`},
	} {
		got, err := ParseTicket([]byte(c.line), twoMissions)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got.Group != c.group || got.Mission != c.mission || got.Label != c.label || got.Content != c.content ||
			string(got.Messages) != c.more || string(got.Rest) != c.rest {
			t.Errorf("%s: %+q", c.name, got)
		}
	}
}

func TestOnlyMissionNeedsNoName(t *testing.T) {
	t.Parallel()
	got, err := ParseTicket([]byte(`{"group_id":"g","content":"c"}`), twoMissions[:1])
	if err != nil || got.Mission != "refunds" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestLinesThatAreNoTicketsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, line, want string }{
		{"no JSON", `group g`, "it is not valid JSON: byte 0"},
		{"half an object", `{"group_id":"g"`, "it is not valid JSON"},
		{"two objects", `{"group_id":"g"}{}`, "it is not valid JSON"},
		{"a list", `[{"group_id":"g"}]`, "it is not a JSON object"},
		{"a string", `"g"`, "it is not a JSON object"},
		{"not UTF-8", "{\"group_id\":\"\xff\",\"mission\":\"spam\",\"content\":\"c\"}", "it is not valid UTF-8"},
		{"a member twice", `{"group_id":"g","mission":"spam","content":"c","group_id":"h"}`,
			`it has the member "group_id" twice`},
		{"a label twice, once in escapes", `{"group_id":"g","label":"a","mission":"spam","content":"c","\u006cabel":"b"}`,
			`it has the member "label" twice`},
		{"another member twice", `{"group_id":"g","mission":"spam","content":"c","x":1,"x":2}`,
			`it has the member "x" twice`},
		{"no group", `{"mission":"spam","content":"c"}`, "it has no group_id"},
		{"an empty group", `{"group_id":"","mission":"spam","content":"c"}`, "it has no group_id"},
		{"a group that is null", `{"group_id":null,"mission":"spam","content":"c"}`, "it has no group_id"},
		{"a group that is an object", `{"group_id":{},"mission":"spam","content":"c"}`, "its group_id is not text"},
		{"a label that is a list", `{"group_id":"g","label":["a"],"mission":"spam","content":"c"}`, "its label is not text"},
		{"a group of 10 MB", `{"group_id":"` + strings.Repeat("g", 10<<20) + `","mission":"spam","content":"c"}`,
			"its group_id has 10485760 bytes, at most 512 are allowed"},
		{"a label of many digits", `{"group_id":"g","label":1` + strings.Repeat("0", 600) +
			`,"mission":"spam","content":"c"}`,
			"its label has 601 bytes, at most 512 are allowed"},
		{"half of a surrogate pair in the group", `{"group_id":"\ud800","mission":"spam","content":"c"}`,
			"its group_id has half of a surrogate pair"},
		{"half of a surrogate pair in the label", `{"group_id":"g","label":"\udc00","mission":"spam","content":"c"}`,
			"its label has half of a surrogate pair"},
		{"content that is not text", `{"group_id":"g","mission":"spam","content":7}`, "its content is not text"},
		{"no content", `{"group_id":"g","mission":"spam"}`, "it has no content"},
		{"content of white space", `{"group_id":"g","mission":"spam","content":" \n\t"}`, "it has no content"},
		{"content and messages", `{"group_id":"g","mission":"spam","content":"c","messages":[{}]}`,
			"it has both content and messages"},
		{"messages that are not a list", `{"group_id":"g","mission":"spam","messages":{}}`, "its messages are not a list"},
		{"messages without one", `{"group_id":"g","mission":"spam","messages":[ ]}`, "its messages are an empty list"},
		{"no mission of two", `{"group_id":"g","content":"c"}`, "it has no mission: name one of the 2 in the config"},
		{"an unknown mission", `{"group_id":"g","mission":"Spam","content":"c"}`,
			`its mission "Spam" has no table [[mission]]`},
		{"nested too deep", `{"group_id":"g","mission":"spam","content":"c","x":` + strings.Repeat("[", 5000) +
			strings.Repeat("]", 5000) + `}`, "it is not valid JSON"},
	} {
		_, err := ParseTicket([]byte(c.line), twoMissions)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		if len(err.Error()) > 300 {
			t.Errorf("%s: the message has %d bytes", c.name, len(err.Error()))
		}
	}
}

func TestKeyOfTicketIsGroupAndLabel(t *testing.T) {
	t.Parallel()
	a := Ticket{Group: "g", Label: "x", Mission: "refunds", Content: "c"}
	if b := (Ticket{Group: "g", Label: "x", Mission: "spam", Content: "d", Rest: []byte("{}")}); a.Key() != b.Key() {
		t.Error("the key depends on more than group and label")
	}
	seen := map[string]Ticket{}
	for _, other := range []Ticket{{Group: "g"}, {Group: "g", Label: "x"}, {Group: "gx"}, {Group: "x", Label: "g"},
		{Group: `g","x`}, {Group: `g`, Label: `","x`}, {Group: "<g>"}, {Group: "\u003cg>\u2028"}} {
		k := other.Key().String()
		if same, dup := seen[k]; dup {
			t.Errorf("%+v and %+v have the same key", same, other)
		}
		seen[k] = other
	}
	const golden = "fcec85bd9760eabebc7e93936d5e997b09497d99d9e7557eda47206019d318eb"
	if got := a.Key().String(); got != golden {
		t.Errorf("the key of %+v is %s, not %s: seeds would change", a, got, golden)
	}
}

// FuzzParseTicket checks that a line is either refused or carried on whole: what its
// members carry is valid JSON without the text, which names the same ticket.
func FuzzParseTicket(f *testing.F) {
	for _, line := range []string{
		`{"group_id":"g","mission":"spam","content":"a","label":"yes"}`,
		`{"group_id":17,"mission":"spam","messages":[{"role":"user","content":"\ud83d"}],"x":{"y":[1.0,null]}}`,
		`{"group_id":"\u00e9\ud800","mission":"spam","content":"c"}`,
		`{"group\u005fid":"g","mission":"spam","content":"\u2028"," ":0}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got, err := ParseTicket(line, twoMissions)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("the error %v is not invalid", err)
			}
			return
		}
		if err := jsonl.Check(got.Rest); err != nil {
			t.Fatalf("it carries %q: %v", got.Rest, err)
		}
		again, err := restOf(got.Rest)
		if err != nil || again.Key() != got.Key() || again.Mission != got.Mission {
			t.Fatalf("it carries %+v, %v, of %+v", again, err, got)
		}
	})
}
