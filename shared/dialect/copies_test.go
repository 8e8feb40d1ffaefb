package dialect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// sameRequests has, for each dialect, two ways to write one request, and another
// request.
var sameRequests = map[dialect.Name]struct {
	format string // of a line, with its id, extra members, and its request
	same   [2]string
	other  string
}{
	dialect.Plain: {
		`{"id":%s%s,"messages":%s}`,
		[2]string{`[{"role":"user","content":"a"}]`, ` [ {"role": "user","content":"a"}]`},
		`[{"content":"a","role":"user"}]`,
	},
	dialect.OpenAI: {
		`{"custom_id":%s%s,"url":"/v1/chat/completions","body":%s}`,
		[2]string{`{"seed":1,"messages":[{"role":"user"}]}`, `{"seed":1, "messages":[{"role":"user"}]}`},
		`{"seed":2,"messages":[{"role":"user"}]}`,
	},
	dialect.Bedrock: {
		`{"recordId":%s%s,"modelInput":%s}`,
		[2]string{`{"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"role":"user", "content":"a"}]}`},
		`{"messages":[{"role":"user","content":"b"}]}`,
	},
	dialect.Vertex: {
		`{"key":%s%s,"request":%s}`,
		[2]string{`{"contents":[{"parts":[{"text":"a"}]}]}`, `{"contents":[{"parts":[{"text": "a"}]}]}`},
		`{"contents":[{"role":"user","parts":[{"text":"a"}]}]}`,
	},
}

func parsed(t interface{ Fatalf(string, ...any) }, d dialect.Name, line string) *dialect.Item {
	it, err := dialect.Parse(d, []byte(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return it
}

func TestRequestDigestIsEqualForTheSameRequest(t *testing.T) {
	t.Parallel()
	for d, c := range sameRequests {
		a := parsed(t, d, fmt.Sprintf(c.format, `"1"`, ``, c.same[0]))
		b := parsed(t, d, fmt.Sprintf(c.format, `"2"`, `,"x":1`, c.same[1]))
		if a.RequestDigest() != b.RequestDigest() {
			t.Errorf("%s: the digest depends on ids, unknown members or white space", d)
		}
		if other := parsed(t, d, fmt.Sprintf(c.format, `"1"`, ``, c.other)); a.RequestDigest() == other.RequestDigest() {
			t.Errorf("%s: %s and %s have the same digest", d, c.same[0], c.other)
		}
	}
	chat := parsed(t, dialect.OpenAI,
		`{"custom_id":"1","url":"/v1/chat/completions","body":{"messages":[{}],"prompt":"p"}}`)
	text := parsed(t, dialect.OpenAI, `{"custom_id":"1","url":"/v1/completions","body":{"messages":[{}],"prompt":"p"}}`)
	if chat.RequestDigest() == text.RequestDigest() {
		t.Error("one body at two endpoints has the same digest")
	}
}

func TestSampled(t *testing.T) {
	t.Parallel()
	zero, warm := config.Sampling{Temperature: ptr(0.0)}, config.Sampling{Temperature: ptr(0.5)}
	two := config.Sampling{Temperature: ptr(0.0), N: ptr(2)}
	for _, c := range []struct {
		body string
		s    config.Sampling
		want bool
	}{
		{`"messages":[{}]`, zero, false},
		{`"messages":[{}]`, warm, true},
		{`"messages":[{}]`, two, true},
		{`"messages":[{}]`, config.Sampling{}, true},
		{`"messages":[{}],"n":1`, two, false},
		{`"messages":[{}],"n":2`, zero, true},
		{`"messages":[{}],"temperature":0.5`, zero, true},
		{`"messages":[{}],"temperature":null`, zero, true},
		{`"messages":[{}],"temperature":1e-400`, zero, false},
		{`"messages":[{}],"temperature":-0.0`, warm, false},
		{`"messages":[{}],"temperature":"0"`, zero, true},
		{`"messages":[{}],"seed":7`, config.Sampling{}, true},
	} {
		it := parsed(t, dialect.OpenAI, `{"custom_id":"1","url":"/v1/chat/completions","body":{`+c.body+`}}`)
		if got := it.Sampled(c.s); got != c.want {
			t.Errorf("%s under %s: %v", c.body, c.s.Canonical(), got)
		}
	}
}

// copied matches the member that only the row of a copy has.
var copied = regexp.MustCompile(`"copy_of":("[^"]*"|[0-9]+),?`)

// TestCopyIsTheRowOfTheSameAnswers compares the row of a copy with the output row of its
// own line for the same answers without tokens.
func TestCopyIsTheRowOfTheSameAnswers(t *testing.T) {
	t.Parallel()
	m, _ := run()
	at := time.Unix(1700000000, 0)
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(dialect.Names()).Draw(t, "dialect")
		id := rapid.SampledFrom([]string{`"a"`, `"\u0062\ud800"`, `"copy"`})
		extra := rapid.SampledFrom([]string{``, `,"x":[1, 2]`, `,"usage":{"x":1},"response":2,"error":3`,
			`,"copy_of":"me","input_copy_of":1`, `,"modelOutput":0,"completion":"c"`})
		c := sameRequests[d]
		first := parsed(t, d, fmt.Sprintf(c.format, id.Draw(t, "first id"), extra.Draw(t, "first extra"), c.same[0]))
		copyIt := parsed(t, d, fmt.Sprintf(c.format, id.Draw(t, "id"), extra.Draw(t, "extra"), c.same[1]))
		as := answers(rapid.IntRange(1, 3).Draw(t, "answers"))
		for i := range as {
			as[i].Rest = rapid.SampledFrom(rests).Draw(t, "rest")
			as[i].Usage.Unknown = rapid.Bool().Draw(t, "unknown usage")
		}
		row := dialect.AppendOutput(nil, first, m,
			dialect.Result{ID: first.RowID(first.ItemID(m, 1)), Answers: as, GeneratedAt: at})
		for i := range as {
			as[i].Usage = dialect.Usage{}
			as[i].Rest.Usage = nil
		}
		ownID := copyIt.RowID(copyIt.ItemID(m, 2))
		got, err := dialect.AppendCopy([]byte("before"), copyIt, ownID, row)
		if err != nil || !bytes.HasPrefix(got, []byte("before")) || !json.Valid(got[6:]) {
			t.Fatalf("%v: %s", err, got)
		}
		got = got[6:]
		want := dialect.AppendOutput(nil, copyIt, m, dialect.Result{ID: ownID, Answers: as, GeneratedAt: at})
		if n := len(copied.FindAll(got, -1)); n < 1 {
			t.Fatalf("the row does not name the original: %s", got)
		}
		bare := bytes.Replace(copied.ReplaceAllLiteral(got, nil), []byte(",}\n"), []byte("}\n"), 1)
		if want = copied.ReplaceAllLiteral(want, nil); !bytes.Equal(bare, want) {
			t.Fatalf("%s, want\n%s", bare, want)
		}
	})
}

func TestAppendCopyRejectsOtherRows(t *testing.T) {
	t.Parallel()
	it := parsed(t, dialect.Plain, `{"prompt":"p"}`)
	for _, row := range []string{``, `{}`, `{"id":1`, `[]`, "\n", `{"completion":"c"}` + "\n"} {
		got, err := dialect.AppendCopy([]byte("x"), it, "i", []byte(row))
		if !fault.Is(err, fault.Corrupt) || string(got) != "x" {
			t.Errorf("%q: %q, %v", row, got, err)
		}
	}
}

func TestCopyHasNoTokensAndNamesTheOriginal(t *testing.T) {
	t.Parallel()
	m, _ := run()
	first := parsed(t, dialect.Plain, `{"id":7,"prompt":"p","tag":"first"}`)
	it := parsed(t, dialect.Plain, `{"prompt":"p","tag":"mine"}`)
	row := dialect.AppendOutput(nil, first, dialect.Model{URI: m.URI},
		dialect.Result{ID: "7", Answers: answers(1)[:1], GeneratedAt: time.Unix(0, 0)})
	got, err := dialect.AppendCopy(nil, it, "own", row)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		ID     string
		CopyOf int `json:"copy_of"`
		Tag    string
		Usage  map[string]int
		At     string `json:"generated_at"`
	}
	if err := json.Unmarshal(got, &r); err != nil {
		t.Fatal(err)
	}
	if r.ID != "own" || r.CopyOf != 7 || r.Tag != "mine" || r.At != "1970-01-01T00:00:00.000Z" {
		t.Errorf("%s", got)
	}
	if len(r.Usage) != 2 || r.Usage["prompt_tokens"]+r.Usage["completion_tokens"] != 0 {
		t.Errorf("the usage is %v", r.Usage)
	}
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d                   dialect.Name
		line, tools, prompt string
	}{
		{dialect.Plain, `{"id":"a","prompt":"p","tools":[1]}`, `[1]`, `"p"`},
		{dialect.Plain, `{"messages":[{"role": "user"}]}`, ``, `[{"role":"user"}]`},
		{dialect.OpenAI, `{"custom_id":"1","url":"/v1/chat/completions","body":{"n":1,"messages":[{}],"tools":[{"a":1}]}}`,
			`[{"a":1}]`, `[{}]`},
		{dialect.Bedrock, `{"modelInput":{"messages":[{"role":"user","content":"c"}],"system":"s"}}`, ``,
			`[{"role":"system","content":"s"},{"role":"user","content":"c"}]`},
		{dialect.Vertex, `{"request":{"contents":[{"parts":[{"text":"c"}]}]}}`, ``, `[{"role":"user","content":"c"}]`},
	} {
		if tools, prompt := parsed(t, c.d, c.line).Prompt(); string(tools) != c.tools || string(prompt) != c.prompt {
			t.Errorf("%s: %s and %s", c.line, tools, prompt)
		}
	}
}
