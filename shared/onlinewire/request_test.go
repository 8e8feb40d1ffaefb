package onlinewire_test

import (
	"strings"
	"testing"

	"rollout/shared/onlinewire"
)

func TestParseReadsTheModelAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, model, want string // want is the body with the model "new"
		stream            bool
		tokens            int64
	}{
		"first": {`{"model":"m","n":1.0}`, "m", `{"model":"new","n":1.0}`, false, 0},
		"last": {`{ "stream" : true, "max_tokens":7, "model" : "m" } `, "m",
			`{ "stream" : true, "max_tokens":7, "model" : "new" } `, true, 7},
		"escaped": {`{"model":"a\/b"}`, "a/b", `{"model":"new"}`, false, 0},
		"nested": {`{"messages":[{"model":"x"}],"model":"m"}`, "m",
			`{"messages":[{"model":"x"}],"model":"new"}`, false, 0},
		"twice":    {`{"model":"x","model":"m"}`, "m", `{"model":"x","model":"new"}`, false, 0},
		"no model": {`{"prompt":"x"}`, "", `{"prompt":"x"}`, false, 0},
		"odd types": {`{"model":"m","stream":"yes","max_tokens":"7"}`, "m",
			`{"model":"new","stream":"yes","max_tokens":"7"}`, false, 0},
		"responses": {`{"model":"m","max_output_tokens":9}`, "m", `{"model":"new","max_output_tokens":9}`, false, 9},
	} {
		q, err := onlinewire.Parse([]byte(c.body))
		if err != nil || q.Model != c.model || q.Stream != c.stream || q.MaxTokens != c.tokens {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
		if got := string(q.WithModel("new")); got != c.want {
			t.Errorf("%s: with another model it is %s, want %s", name, got, c.want)
		}
		if got := string(q.WithModel(c.model)); got != c.body {
			t.Errorf("%s: with the same model it is %s", name, got)
		}
	}
}

func TestParseRefusesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "[]", `"x"`, "{", `{"a":}`, `{"model":1}`, `{"model":"m"} {}`,
		`{"a":` + strings.Repeat("[", 20_000)} {
		if q, err := onlinewire.Parse([]byte(body)); err == nil {
			t.Errorf("%.20s is read as %+v", body, q)
		}
	}
}

// FuzzParse checks that any body is read or refused, and that a change of the model is one
// that the same reader understands.
func FuzzParse(f *testing.F) {
	f.Add(`{"model":"m","stream":true}`)
	f.Add(`{"model":"\ud800","model":"x"}`)
	f.Fuzz(func(t *testing.T, body string) {
		q, err := onlinewire.Parse([]byte(body))
		if err != nil || q.Model == "" {
			return
		}
		again, err := onlinewire.Parse(q.WithModel("new"))
		if err != nil || again.Model != "new" {
			t.Errorf("%q with another model is %q: %+v, %v", body, q.WithModel("new"), again.Model, err)
		}
	})
}
