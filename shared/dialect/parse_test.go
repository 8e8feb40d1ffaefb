package dialect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

const (
	chatURL = `"method":"POST","url":"/v1/chat/completions"`
	textURL = `"method":"POST","url":"/v1/completions"`
	hello   = `"messages":[{"role":"user","content":"hello"}]`
	parts   = `"contents":[{"role":"user","parts":[{"text":"hello"}]}]`
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d        dialect.Name
		line     string
		id       string
		endpoint dialect.Endpoint
		n        int
		request  string
	}{
		{dialect.Plain, `{"prompt":"a"}`, "", dialect.Completion, 0, `"a"`},
		{dialect.Plain, ` { "prompt" : "a" , "id" : "x" } ` + "\r", "x", dialect.Completion, 0, `"a"`},
		{dialect.Plain, `{"id":null,"messages":[ {"role": "user", "content": "a b"} ]}`, "", dialect.Chat, 0,
			`[{"role":"user","content":"a b"}]`},
		{dialect.Plain, `{"id":9007199254740993,"prompt":""}`, "9007199254740993", dialect.Completion, 0, `""`},
		{dialect.Plain, `{"\u0069d":"\u00e9\ud83d\ude00","pro\u006dpt":"\ud800"}`, "é😀", dialect.Completion, 0, `"\ud800"`},
		{dialect.Plain, "{\"prompt\":\"a\u2028b\u2029c\u0085d\"}", "", dialect.Completion, 0, "\"a\u2028b\u2029c\u0085d\""},
		{dialect.OpenAI, `{"custom_id":"1",` + chatURL + `,"body":{"model":"m", ` + hello + `,"n":3}}`, "1", dialect.Chat, 3,
			`{"model":"m",` + hello + `,"n":3}`},
		{dialect.OpenAI, `{"custom_id":"1",` + textURL + `,"body":{"prompt":[1,2,3],"n":null}}`, "1", dialect.Completion, 0,
			`{"prompt":[1,2,3],"n":null}`},
		{dialect.OpenAI, `{"custom_id":"1","url":"/v1/completions","body":{"prompt":"x","seed":9223372036854775807}}`, "1",
			dialect.Completion, 0, `{"prompt":"x","seed":9223372036854775807}`},
		{dialect.Bedrock, `{"modelInput":{"anthropic_version":"bedrock-2023-05-31","max_tokens":5,` + hello + `}}`, "",
			dialect.Chat, 0, `{"anthropic_version":"bedrock-2023-05-31","max_tokens":5,` + hello + `}`},
		{dialect.Bedrock,
			`{"recordId":"r","modelInput":{"system":[{"type":"text","text":"s","cache_control":{}}],` + hello + `}}`, "r",
			dialect.Chat, 0, `{"system":[{"type":"text","text":"s","cache_control":{}}],` + hello + `}`},
		{dialect.Vertex, `{"request":{` + parts + `,"generationConfig":{"candidateCount":2},"labels":{"a":"b"}}}`, "",
			dialect.Chat, 2, `{` + parts + `,"generationConfig":{"candidateCount":2},"labels":{"a":"b"}}`},
		{dialect.Vertex,
			`{"key":"k","request":{"contents":[{"parts":[{"text":"a"}]}],"system_instruction":{"parts":[{"text":"s"}]}}}`, "k",
			dialect.Chat, 0, `{"contents":[{"parts":[{"text":"a"}]}],"system_instruction":{"parts":[{"text":"s"}]}}`},
	} {
		it, err := dialect.Parse(c.d, []byte(c.line))
		if err != nil {
			t.Errorf("%s %s: %v", c.d, c.line, err)
			continue
		}
		if it.ID != c.id || it.HasID != (c.id != "") || it.Endpoint != c.endpoint || it.N != c.n ||
			string(it.Request) != c.request {
			t.Errorf("%s %s: %+v", c.d, c.line, it)
		}
	}
}

// TestParseRejects also checks that Parse returns a readable id with the error. Every
// line with an id has "x".
func TestParseRejects(t *testing.T) {
	t.Parallel()
	body := func(s string) string { return `{"custom_id":"x",` + chatURL + `,"body":` + s + `}` }
	input := func(s string) string { return `{"recordId":"x","modelInput":` + s + `}` }
	request := func(s string) string { return `{"key":"x","request":` + s + `}` }
	for _, c := range []struct {
		d          dialect.Name
		line, want string
		noID       bool
	}{
		{dialect.Plain, `[1,2,3]`, "not a JSON object", true}, // C08
		{dialect.Plain, `"s"`, "not a JSON object", true},
		{dialect.Plain, `null`, "not a JSON object", true},
		{dialect.Plain, `x`, "not a JSON object", true},
		{dialect.Plain, `{"body":"x"}`, "neither prompt nor messages", true},
		{dialect.Plain, `{"id":"x"}`, "neither prompt nor messages", false},
		{dialect.Plain, `{"id":"x","prompt":"a"`, "byte 22: the text ends", false},
		{dialect.Plain, `{"prompt":bad,"id":"x"}`, "byte 10", true},
		{dialect.Plain, `{"id":"x","prompt":"a"} {}`, "byte 24", false},
		{dialect.Plain, `{"id":"x","prompt":5}`, "prompt is a number, not a string", false},
		{dialect.Plain, `{"id":"x","prompt":["a"]}`, "prompt is an array", false},
		{dialect.Plain, `{"id":"x","messages":[]}`, "messages is empty", false},
		{dialect.Plain, `{"id":"x","messages":"a"}`, "messages is a string", false},
		{dialect.Plain, `{"id":"x","messages":["a"]}`, "an element of messages is a string, not an object", false},
		{dialect.Plain, `{"id":"x","prompt":"a","messages":[{}]}`, "both prompt and messages", false},
		{dialect.Plain, `{"prompt":"a","id":""}`, "id is an empty string", true},
		{dialect.Plain, `{"prompt":"a","id":{}}`, "id is an object, not a string or a number", true},
		{dialect.Plain, "{\"id\":\"x\",\"prompt\":\"\xff\"}", "not valid UTF-8: byte 20", false},
		{dialect.Plain, "{\"id\":\"\xff\",\"prompt\":\"a\"}", "not valid UTF-8", true},
		{dialect.Plain, `{"id":"x","prompt":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`,
			"nest deeper than 200", false},
		{dialect.Plain, `{"id":"x","prompt":"a","prompt":"b"}`, `"prompt" more than once`, false}, // C09
		{dialect.Plain, `{"id":"x","id":"y","prompt":"b"}`, `"id" more than once`, false},
		{dialect.Plain, `{"id":"x","prompt":"a","z":1,"\u007a":2}`, `"\u007a" more than once`, false},
		{dialect.OpenAI, `{` + chatURL + `,"body":{` + hello + `}}`, "no custom_id", true},
		{dialect.OpenAI, `{"custom_id":5,` + chatURL + `,"body":{` + hello + `}}`, "custom_id is a number, not a string",
			true},
		{dialect.OpenAI, `{"custom_id":"x","body":{` + hello + `}}`, "no url", false},
		{dialect.OpenAI, `{"custom_id":"x","url":"/v1/images/edits","body":{}}`, `"/v1/images/edits" is not served`, false},
		{dialect.OpenAI, `{"custom_id":"x","url":"https://h/v1/chats","body":{}}`, "is not served", false},
		{dialect.OpenAI, `{"custom_id":"x","method":"GET","url":"/v1/chat/completions","body":{}}`, `method is "GET"`, false},
		{dialect.OpenAI, `{"custom_id":"x",` + chatURL + `}`, "no body", false},
		{dialect.OpenAI, body(`"x"`), "body is a string, not an object", false},
		{dialect.OpenAI, body(`{}`), "no messages", false},
		{dialect.OpenAI, body(`{` + hello + `,` + hello + `}`), `body has "messages" more than once`, false},
		{dialect.OpenAI, body(`{` + hello + `,"n":0}`), "body.n is 0", false},
		{dialect.OpenAI, body(`{` + hello + `,"n":129}`), "body.n is 129", false},
		{dialect.OpenAI, body(`{` + hello + `,"n":1.0}`), "body.n is 1.0", false},
		{dialect.OpenAI, body(`{` + hello + `,"model":1}`), "body.model is a number", false},
		{dialect.OpenAI, body(`{` + hello + `,"seed":"1"}`), "body.seed is a string", false},
		{dialect.OpenAI, `{"custom_id":"x",` + textURL + `,"body":{` + hello + `}}`, "no prompt", false},
		{dialect.OpenAI, `{"custom_id":"x",` + textURL + `,"body":{"prompt":["a","b"]}}`, "more than token ids", false},
		{dialect.OpenAI, `{"custom_id":"x",` + textURL + `,"body":{"prompt":[]}}`, "body.prompt is empty", false},
		{dialect.OpenAI, `{"custom_id":"x",` + textURL + `,"body":{"prompt":{}}}`, "body.prompt is an object", false},
		{dialect.Bedrock, `{"recordId":"x"}`, "no modelInput", false},
		{dialect.Bedrock, `{"recordId":7,"modelInput":{}}`, "recordId is a number, not a string", true},
		{dialect.Bedrock, input(`[]`), "modelInput is an array", false},
		{dialect.Bedrock, input(`{}`), "no messages", false},
		{dialect.Bedrock, input(`{"inputText":"a"}`), "modelInput.inputText is not supported", false},
		{dialect.Bedrock, input(`{` + hello + `,"tools":[]}`), "modelInput.tools is not supported", false},
		{dialect.Bedrock, input(`{` + hello + `,"max_tokens":"5"}`), "modelInput.max_tokens is a string", false},
		{dialect.Bedrock, input(`{` + hello + `,"stop_sequences":[1]}`),
			"an element of modelInput.stop_sequences is a number", false},
		{dialect.Bedrock, input(`{` + hello + `,"top_k":1,"top_k":2}`), `"top_k" more than once`, false},
		{dialect.Bedrock, input(`{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`),
			`messages[0].content[0].type "image" is not supported`, false},
		{dialect.Bedrock, input(`{"messages":[{"role":"user","content":[]}]}`), "messages[0].content is empty", false},
		{dialect.Bedrock, input(`{"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}`),
			"content[0].text is a number", false},
		{dialect.Bedrock, input(`{"messages":[{"role":"system","content":"a"}]}`), "messages[0].role is neither", false},
		{dialect.Bedrock, input(`{"messages":[{"content":"a"}]}`), "messages[0].role is neither", false},
		{dialect.Bedrock, input(`{"messages":[{"role":"user"}]}`), "messages[0] has no content", false},
		{dialect.Bedrock, input(`{"messages":[{"role":"user","content":"a","content":"b"}]}`), `"content" more than once`,
			false},
		{dialect.Bedrock, input(`{"system":{},` + hello + `}`), "modelInput.system is an object, not an array", false},
		{dialect.Vertex, `{"key":"x"}`, "no request", false},
		{dialect.Vertex, request(`5`), "request is a number", false},
		{dialect.Vertex, request(`{}`), "no contents", false},
		{dialect.Vertex, request(`{"contents":[]}`), "contents is empty", false},
		{dialect.Vertex, request(`{` + parts + `,"tools":[]}`), "request.tools is not supported", false},
		{dialect.Vertex, request(`{"contents":[{"role":"user","parts":[{"inlineData":{}}]}]}`),
			"parts[0].inlineData is not supported", false},
		{dialect.Vertex, request(`{"contents":[{"role":"tool","parts":[{"text":"a"}]}]}`), "contents[0].role is neither",
			false},
		{dialect.Vertex, request(`{"contents":[{"role":"user"}]}`), "contents[0] has no parts", false},
		{dialect.Vertex, request(`{"contents":[{"parts":[]}]}`), "parts is empty", false},
		{dialect.Vertex, request(`{"contents":[{"parts":[{}]}]}`), "parts[0] has no text", false},
		{dialect.Vertex, request(`{` + parts + `,"generationConfig":{"responseSchema":{}}}`),
			"responseSchema is not supported", false},
		{dialect.Vertex, request(`{` + parts + `,"generationConfig":{"topP":1,"top_p":1}}`), "top_p twice", false},
		{dialect.Vertex, request(`{` + parts + `,"generationConfig":{},"generation_config":{}}`), "two spellings", false},
		{dialect.Vertex, request(`{` + parts + `,"generationConfig":{"candidateCount":1,"candidate_count":1}}`),
			"candidateCount twice", false},
		{dialect.Vertex, request(`{` + parts + `,"generationConfig":{"candidateCount":0}}`), "candidateCount is 0", false},
	} {
		it, err := dialect.Parse(c.d, []byte(c.line))
		var e *fault.Error
		switch {
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s %s: %v, want %q", c.d, c.line, err, c.want)
		case !errors.As(err, &e) || e.Kind != fault.Invalid || e.Class != fault.InvalidLine || e.Remedy == "":
			t.Errorf("%s %s: %#v", c.d, c.line, err)
		case it == nil || it.HasID == c.noID || it.HasID && it.ID != "x":
			t.Errorf("%s %s: the id is %+v", c.d, c.line, it)
		}
	}
}

func TestC41LongIDsAreAccepted(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("i", 300<<10)
	it, err := dialect.Parse(dialect.OpenAI, []byte(`{"custom_id":"`+id+`",`+chatURL+`,"body":{`+hello+`}}`))
	if err != nil || it.ID != id {
		t.Errorf("%d bytes, %v", len(it.ID), err)
	}
}

func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	line := func(n int, last string) []byte {
		b := []byte(`{"prompt":"a"`)
		for i := range n {
			b = fmt.Appendf(b, `,"%d":0`, i)
		}
		return append(b, last...)
	}
	for _, c := range []struct {
		line []byte
		want string
	}{
		{line(10_000, `,"id":"x"}`), ""},
		{line(10_000, `,"id":"x","17":1}`), `"17" more than once`},
		{line(100_000, `,"id":"x"}`), "has 100002 members"},
	} {
		it, err := dialect.Parse(dialect.Plain, c.line)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if it.ID != "x" {
			t.Errorf("the id is %q", it.ID)
		}
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		head string
		want dialect.Name
	}{
		{"", dialect.Plain},
		{"\n\n", dialect.Plain},
		{"nonsense\n[1]\nnull\n", dialect.Plain},
		{`{"prompt":"a"}`, dialect.Plain},
		{`{"messages":[]}`, dialect.Plain},
		{"\xEF\xBB\xBF" + `{"custom_id":"a","method":"POST","url":"","body":{}}`, dialect.OpenAI},
		{`{"custom_id":"a","prompt":"with an extra field"}`, dialect.Plain},
		{"\r\n" + `{"recordId":"a","modelInput":{}}` + "\r\n", dialect.Bedrock},
		{`{"modelInput":{}}`, dialect.Bedrock},
		{`{"request":{}}`, dialect.Vertex},
		{`{"unknown":1}` + "\n" + `{"request":{}}`, dialect.Vertex},
		{`"s"` + "\n" + `{"custom_id":"a"}` + "\n" + `{"prompt":"b"}`, dialect.OpenAI},
		{`{"custom_id":"a","body":{"cut off`, dialect.OpenAI},
	} {
		if got := dialect.Detect([]byte(c.head)); got != c.want {
			t.Errorf("Detect(%q) = %s, want %s", c.head, got, c.want)
		}
	}
}

func TestConfigAcceptsTheSameDialects(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultRun()
	for _, n := range dialect.Names() {
		if cfg.Input.Dialect = string(n); cfg.Check() != nil {
			t.Errorf("a config rejects the dialect %s: %v", n, cfg.Check())
		}
	}
	if cfg.Input.Dialect = "csv"; !fault.Is(cfg.Check(), fault.Invalid) {
		t.Errorf("a config accepts the dialect csv: %v", cfg.Check())
	}
}

func TestCheckModelRejectsOtherModels(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]fault.Class{
		``: "", `,"model":"m"`: "", `,"model":"\u006d"`: "", `,"model":"gpt"`: fault.Refused,
	} {
		it, err := dialect.Parse(dialect.OpenAI, []byte(`{"custom_id":"x",`+chatURL+`,"body":{`+hello+member+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := it.CheckModel("m", nil); fault.ClassOf(err) != want || (want != "") != fault.Is(err, fault.Invalid) {
			t.Errorf("CheckModel of %s: %v", member, err)
		}
	}
}
