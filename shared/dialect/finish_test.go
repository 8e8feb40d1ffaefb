package dialect_test

import (
	"testing"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
)

// lineOf are lines of each dialect.
var lineOf = map[dialect.Name]string{
	dialect.Plain: `{"id":"a","prompt":"p","finish_reason":"mine"}`,
	dialect.OpenAI: `{"custom_id":"a","method":"POST","url":"/v1/chat/completions",` +
		`"body":{"messages":[{"role":"user","content":"a"}]}}`,
	dialect.Bedrock: `{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"p"}]}}`,
	dialect.Vertex:  `{"request":{"contents":[{"role":"user","parts":[{"text":"p"}]}]}}`,
}

func TestRowsTellHowTheirAnswersEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends    []string // of the row's answers
		reasons []string
		want    bool
	}{
		"the reason":              {[]string{"length"}, []string{"length"}, true},
		"another reason":          {[]string{"stop"}, []string{"length"}, false},
		"one of several reasons":  {[]string{"stop"}, []string{"length", "stop"}, true},
		"the second answer":       {[]string{"stop", "length"}, []string{"length"}, true},
		"no answer":               {[]string{"stop", "stop"}, []string{"length"}, false},
		"a server without reason": {[]string{""}, []string{"none"}, true},
		"with a reason":           {[]string{"stop"}, []string{"none"}, false},
		"the server's own reason": {[]string{"content_filter"}, []string{"content_filter"}, true},
		"calls of tools":          {[]string{"tool_calls"}, []string{"tool_calls"}, true},
	} {
		for d, line := range lineOf {
			it := parsed(t, d, line)
			m := dialect.NewModel("m", identity.Model("m", ""), config.Run{})
			r := dialect.Result{ID: "a", GeneratedAt: time.Unix(0, 0)}
			for _, reason := range c.ends {
				r.Answers = append(r.Answers, dialect.Answer{Text: "t", FinishReason: reason})
			}
			row := dialect.AppendOutput(nil, it, m, r)
			if got := dialect.HasFinishReason(d, row, c.reasons); got != c.want {
				t.Errorf("%s, %s: %v of %s", d, name, got, row)
			}
		}
	}
}

func TestWhatIsNoOutputRowEndedForNoReason(t *testing.T) {
	t.Parallel()
	for d := range lineOf {
		for _, row := range []string{"", "{", "[]", `{"finish_reason":3}`, `{"response":null}`} {
			if dialect.HasFinishReason(d, []byte(row), []string{"length", "stop"}) {
				t.Errorf("%s: %s", d, row)
			}
		}
	}
}

// An OpenAI response, which has no choices, tells its end by its status.
func TestResponsesTellHowTheyEnded(t *testing.T) {
	t.Parallel()
	for body, reason := range map[string]string{
		`"status":"completed"`: "stop",
		`"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}`: "length",
		`"status":"incomplete","incomplete_details":{"reason":"content_filter"}`:    "content_filter",
		`"status":"incomplete"`: "incomplete",
		`"object":"list"`:       "none",
	} {
		row := []byte(`{"custom_id":"a","response":{"body":{` + body + `}}}`)
		if !dialect.HasFinishReason(dialect.OpenAI, row, []string{reason}) {
			t.Errorf("%s did not end for the reason %s", body, reason)
		}
	}
}

// A run that asks items again with other settings sends others, and keeps ids and seeds.
func TestIDsAndSeedsAreThoseOfTheOriginalSettings(t *testing.T) {
	t.Parallel()
	it, id := parsed(t, dialect.Plain, `{"prompt":"p"}`), identity.Model("m", "")
	few, many := 10, 800
	first := dialect.NewModel("m", id, config.Run{Sampling: config.Sampling{MaxTokens: &few}})
	again := dialect.NewModel("m", id, config.Run{Sampling: config.Sampling{MaxTokens: &many},
		Request: &config.Request{System: "be brief"}})
	if it.ItemID(first, 3) == it.ItemID(again, 3) {
		t.Fatal("the settings are no part of the id")
	}
	again.Original = &first
	if it.ItemID(first, 3) != it.ItemID(again, 3) {
		t.Error("the id has changed")
	}
}
