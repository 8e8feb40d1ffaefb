package dialect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
)

// members draws the text of an object, perhaps invalid, with members of interest.
func members(t *rapid.T) string {
	name := rapid.SampledFrom([]string{"id", `\u0069d`, "custom_id", "recordId", "key", "prompt", "messages", "body",
		"modelInput", "request", "x", "url"})
	value := rapid.SampledFrom([]string{`"a"`, `"\ud800"`, `""`, `1`, `-0`, `null`, `{}`, `[{}]`, `"/v1/completions"`,
		`{"prompt":"p"}`, `tru`, `"`, "\"\xff\"", `{"messages":[{"role":"user","content":"c"}]}`})
	space := rapid.SampledFrom([]string{"", "", " ", "\t", "\r"})
	var b strings.Builder
	b.WriteString("{")
	n := rapid.IntRange(0, 6).Draw(t, "members")
	for i := range n {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(space.Draw(t, "space") + `"` + name.Draw(t, "name") + `":` + space.Draw(t, "space") + value.Draw(t,
			"value"))
	}
	b.WriteString(rapid.SampledFrom([]string{"}", "}", "}", "", "}}"}).Draw(t, "end"))
	return b.String()
}

// A Parser keeps nothing of the lines before, and its keys tell ids apart.
func TestParserAgreesWithParse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(dialect.Names()).Draw(t, "dialect")
		p := dialect.NewParser(d)
		for range rapid.IntRange(1, 4).Draw(t, "lines") {
			line := []byte(members(t))
			want, wantErr := dialect.Parse(d, line)
			it, ok, err := p.ParseWithID(line)
			if ok != want.HasID {
				t.Fatalf("%q has an id: %v, want %v", line, ok, want.HasID)
			}
			if !ok {
				it, err = p.Parse(line)
			}
			if it.ID != want.ID || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%q is %q, %v; want %q, %v", line, it.ID, err, want.ID, wantErr)
			}
			if err == nil && it.RequestDigest() != want.RequestDigest() {
				t.Fatalf("%q has another request", line)
			}
			if ok && !slices.ContainsFunc(dialect.IDKeys(it.ID), func(k []byte) bool {
				return bytes.Equal(k, p.IDKey(it, err == nil))
			}) {
				t.Fatalf("%q is none of the keys of %q", p.IDKey(it, err == nil), it.ID)
			}
		}
	})
}

func TestScanIDAgreesWithParse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(dialect.Names()).Draw(t, "dialect")
		line := []byte(members(t))
		it, err := dialect.Parse(d, line)
		if id, ok := dialect.ScanID(d, line); ok != it.HasID || string(id) != it.ID {
			t.Fatalf("ScanID(%s, %q) = %q, %v; Parse returns %q, %v, %v", d, line, id, ok, it.ID, it.HasID, err)
		}
		if err == nil && !json.Valid(line) {
			t.Fatalf("%q is accepted", line)
		}
	})
}

func TestC24SeedsDifferAndRepeat(t *testing.T) {
	t.Parallel()
	m, _ := run()
	seeds := map[string]bool{}
	seed := func(it *dialect.Item, s config.Sampling, index uint64, k int) string {
		var b struct{ Seed json.Number }
		if err := json.Unmarshal(it.Body(nil, m.URI, s, it.ItemID(m, index), k), &b); err != nil {
			t.Fatal(err)
		}
		return b.Seed.String()
	}
	it, err := dialect.Parse(dialect.Plain, []byte(`{"prompt":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	for index := range uint64(8) {
		for k := range 4 {
			got := seed(it, config.Sampling{}, index, k)
			if seeds[got] {
				t.Errorf("item %d, decode %d: seed %s is not unique", index, k, got)
			}
			seeds[got] = true
			if again := seed(it, config.Sampling{}, index, k); again != got {
				t.Errorf("seed %s, then %s", got, again)
			}
		}
	}
	config := config.Sampling{Seed: ptr(int64(9223372036854775807))}
	if got := seed(it, config, 0, 0); got != "9223372036854775807" {
		t.Errorf("the run's seed became %s", got)
	}
	if seed(it, config, 0, 1) == seed(it, config, 0, 2) {
		t.Error("two decodes have one seed")
	}
}

func TestC03AnswersStayOnOneLine(t *testing.T) {
	t.Parallel()
	m, _ := run()
	const text = "a\u2028b\u2029c\u0085d\ne\rf\v\f\x1c\x1d\x1e"
	for _, d := range dialect.Names() {
		line := map[dialect.Name]string{
			dialect.Plain: `{"prompt":"a"}`, dialect.OpenAI: `{"custom_id":"1",` + chatURL + `,"body":{` + hello + `}}`,
			dialect.Bedrock: `{"modelInput":{` + hello + `}}`, dialect.Vertex: `{"request":{` + parts + `}}`,
		}[d]
		it, err := dialect.Parse(d, []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		row := dialect.AppendOutput(nil, it, m,
			dialect.Result{ID: "x", Answers: []dialect.Answer{{Text: text}}, GeneratedAt: time.Unix(0, 0)})
		if bytes.ContainsAny(row[:len(row)-1], "\u2028\u2029\u0085\n\r\v\f\x1c\x1d\x1e") {
			t.Errorf("%s: %q", d, row)
		}
		quoted, _ := json.Marshal(text)
		var want, got any
		json.Unmarshal(quoted, &want)
		if json.Unmarshal(row, &got) != nil || !holds(got, want) {
			t.Errorf("%s: the row lacks the text: %s", d, row)
		}
	}
}

// holds reports whether v contains want.
func holds(v, want any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if holds(e, want) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if holds(e, want) {
				return true
			}
		}
	}
	s, ok := v.(string)
	return ok && s == want
}

func TestC05NumbersStayAsWritten(t *testing.T) {
	t.Parallel()
	m, s := run()
	for _, number := range []string{"9007199254740993", "9223372036854775807", "1e400", "-0", "1.0", "1E+2"} {
		it, err := dialect.Parse(dialect.Plain, []byte(`{"prompt":"a","metadata":{"id":`+number+`},"id":`+number+`}`))
		if err != nil {
			t.Fatal(err)
		}
		row := string(dialect.AppendOutput(nil, it, m, dialect.Result{ID: it.ID, Answers: answers(1)}))
		if !strings.HasPrefix(row, `{"id":`+number+`,`) || !strings.Contains(row, `"metadata":{"id":`+number+`}`) {
			t.Errorf("%s: %s", number, row)
		}
		row = string(dialect.AppendError(nil, dialect.Plain, it.Failure("", dialect.Place{}, "", "")))
		if !strings.HasPrefix(row, `{"id":`+number+`,`) {
			t.Errorf("%s: %s", number, row)
		}
		it, err = dialect.Parse(dialect.OpenAI,
			[]byte(`{"custom_id":"1",`+chatURL+`,"body":{"seed": `+number+`,"x":`+number+`,`+hello+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		body := string(it.Body(nil, m.URI, s, it.ItemID(m, 0), 0))
		if !strings.Contains(body, `"seed":`+number+`,"x":`+number+`,`) {
			t.Errorf("%s: %s", number, body)
		}
	}
}

func TestC09LineWithARepeatedNameHasNoRequest(t *testing.T) {
	t.Parallel()
	it, err := dialect.Parse(dialect.Plain, []byte(`{"prompt":"a","prompt":"b"}`))
	if err == nil || it.Request != nil {
		t.Errorf("%v, request %s", err, it.Request)
	}
}

func TestItemIDDoesNotDependOnWhiteSpace(t *testing.T) {
	t.Parallel()
	m, _ := run()
	var ids []identity.ContentID
	for _, line := range []string{
		`{"messages":[{"role":"user","content":"a  b"}]}`,
		" {\t\"messages\" : [ { \"role\" : \"user\" ,\r\"content\":\"a  b\"} ] , \"id\":\"x\" }",
	} {
		it, err := dialect.Parse(dialect.Plain, []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, it.ItemID(m, 7))
	}
	if ids[0] != ids[1] {
		t.Errorf("%s and %s", ids[0], ids[1])
	}
}

func TestParamsOfTheRunFillGaps(t *testing.T) {
	t.Parallel()
	s := config.Sampling{Temperature: ptr(1e-7), TopP: ptr(0.5), TopK: ptr(3), MinP: ptr(1e21),
		RepetitionPenalty: ptr(1.1), PresencePenalty: ptr(-2.0),
		FrequencyPenalty: ptr(0.0), MaxTokens: ptr(9), Stop: []string{"."}, Logprobs: ptr(1), N: ptr(2)}
	all := `"temperature":1e-7,"top_p":0.5,"top_k":3,"min_p":1e+21,"repetition_penalty":1.1,"presence_penalty":-2,` +
		`"frequency_penalty":0,"max_tokens":9,"stop":["."],"logprobs":true,"top_logprobs":1,`
	minP, stop := strings.Index(all, `"min_p"`), strings.Index(all, `"stop"`)
	between := `"min_p":0,"repetition_penalty":1,"presence_penalty":0,"frequency_penalty":0,"max_tokens":1,`
	for body, want := range map[string]string{
		``:                                      all,
		`"max_completion_tokens":5,`:            strings.Replace(all, `"max_tokens":9,`, "", 1),
		`"logprobs":false,`:                     strings.Replace(all, `"logprobs":true,"top_logprobs":1,`, "", 1),
		`"stop":null,`:                          strings.Replace(all, `"stop":["."],`, "", 1),
		`"temperature":0,"top_p":1,"top_k":-1,`: all[minP:],
		between:                                 all[:minP] + all[stop:],
	} {
		it, err := dialect.Parse(dialect.OpenAI, []byte(`{"custom_id":"1",`+chatURL+`,"body":{`+body+`"seed":1,`+hello+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		got := string(it.Body(nil, "m", s, identity.ContentID{}, 0))
		want = `{"model":"m",` + body + `"seed":1,` + hello + `,` + strings.TrimSuffix(want, ",") + `}`
		if got != want {
			t.Errorf("body\n%s, want\n%s", got, want)
		}
		if n := it.AnswerCount(s); n != 2 {
			t.Errorf("%d decodes", n)
		}
	}
}
