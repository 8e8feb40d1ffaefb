package dialect_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// seeds matches the derived seed of a body.
var seeds = regexp.MustCompile(`,"seed":[0-9]+`)

// sent returns the body that is sent for a line, without its seed, and the endpoint.
func sent(t *testing.T, d dialect.Name, line string, run *config.Request, engine config.Request) (string,
	dialect.Endpoint, error) {
	t.Helper()
	it := parsed(t, d, line)
	s := config.Sampling{Temperature: ptr(0.5), MaxTokens: ptr(9), Logprobs: ptr(2)}
	st := dialect.NewSettings(run, engine)
	e, err := st.Target(it)
	if err != nil {
		return "", e, err
	}
	body := it.Body(nil, "m", s, identity.ContentID{}, 0)
	if st != nil {
		body = st.Apply(nil, it, e, body)
	}
	if !json.Valid(body) {
		t.Fatalf("not JSON: %s", body)
	}
	return strings.TrimSuffix(seeds.ReplaceAllLiteralString(string(body), ""), "}"), e, nil
}

func TestSettingsChangeRequests(t *testing.T) {
	t.Parallel()
	const (
		prompt = `{"prompt":"p"}`
		chat   = `{"messages":[{"role":"user","content":"u"}]}`
		batch  = `{"custom_id":"a","url":"/v1/chat/completions","body":{"model":"gpt","messages":[{"role":"user",` +
			`"content":"u"}],` +
			`"max_tokens":3}}`
	)
	override := &config.Request{BodyModel: map[string]string{"*": ""}}
	for _, c := range []struct {
		name, line  string
		run         *config.Request
		engine      config.Request
		want        string
		endpoint    dialect.Endpoint
		wantRefused string
	}{
		{"nothing", prompt, nil, config.Request{},
			`{"model":"m","prompt":"p","temperature":0.5,"max_tokens":9,"logprobs":2`, dialect.Completion, ""},
		{"chat of a prompt", prompt, &config.Request{Endpoint: "chat", System: "be brief"}, config.Request{},
			`{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"p"}],"temperature":0.5,` +
				`"max_tokens":9,"logprobs":true,"top_logprobs":2`, dialect.Chat, ""},
		{"system only where there is none", `{"messages":[{"role":"developer","content":"d"}]}`,
			&config.Request{System: "be brief"}, config.Request{},
			`{"model":"m","messages":[{"role":"developer","content":"d"}],"temperature":0.5,"max_tokens":9,"logprobs":true,` +
				`"top_logprobs":2`, dialect.Chat, ""},
		{"system of a raw prompt", prompt, &config.Request{System: "be brief"}, config.Request{}, "", "",
			"no system message"},
		{"messages as a completion", chat, &config.Request{Endpoint: "completions"}, config.Request{}, "", "",
			"can't be sent"},
		{"responses", prompt, &config.Request{Endpoint: "responses", System: "s"}, config.Request{},
			`{"model":"m","input":"p","temperature":0.5,"max_output_tokens":9,"instructions":"s"`, dialect.Responses, ""},
		{"responses of messages", chat, &config.Request{Endpoint: "responses"}, config.Request{},
			`{"model":"m","input":[{"role":"user","content":"u"}],"temperature":0.5,"max_output_tokens":9,"top_logprobs":2`,
			dialect.Responses, ""},
		{"embeddings", prompt, &config.Request{Endpoint: "embeddings", Extra: map[string]any{"dimensions": int64(8)}},
			config.Request{}, `{"model":"m","input":"p","dimensions":8`, dialect.Embeddings, ""},
		{"rerank", `{"query":"q","documents":["a", "b"]}`, nil, config.Request{Omit: []string{"x"}},
			`{"model":"m","query":"q","documents":["a","b"]`, dialect.Rerank, ""},
		{"omit, extra, and the name of max_tokens", chat, &config.Request{Omit: []string{"logprobs", "top_logprobs", "seed"},
			Extra: map[string]any{"temperature": 2.0, "a": []any{"x", int64(1)}}, MaxTokensField: "max_completion_tokens"},
			config.Request{}, `{"model":"m","messages":[{"role":"user","content":"u"}],"temperature":0.5,` +
				`"max_completion_tokens":9,"a":["x",1]`, dialect.Chat, ""},
		{"the run over the engine", chat, &config.Request{Extra: map[string]any{"a": int64(1)}, Omit: []string{"logprobs"}},
			config.Request{Extra: map[string]any{"a": int64(2), "b": int64(3)}, Omit: []string{"top_logprobs", "temperature"}},
			`{"model":"m","messages":[{"role":"user","content":"u"}],"max_tokens":9,"a":1,"b":3`, dialect.Chat, ""},
		{"the engine's name of the model", chat, nil, config.Request{BodyModel: map[string]string{"m": "served"},
			Omit: []string{"logprobs", "top_logprobs"}},
			`{"model":"served","messages":[{"role":"user","content":"u"}],"temperature":0.5,"max_tokens":9`, dialect.Chat, ""},
		{"another model in the body", batch, override, config.Request{},
			`{"model":"m","messages":[{"role":"user","content":"u"}],"max_tokens":3,"temperature":0.5,"logprobs":true,` +
				`"top_logprobs":2`, dialect.Chat, ""},
		{"another model in the body, by a map", batch, &config.Request{BodyModel: map[string]string{"gpt": "mine"}},
			config.Request{}, `{"model":"mine","messages":[{"role":"user","content":"u"}],"max_tokens":3,"temperature":0.5,` +
				`"logprobs":true,"top_logprobs":2`, dialect.Chat, ""},
		{"names with escapes", `{"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{}],` +
			`"a\",\"model\":\"other":1,"\ud800":2}}`, &config.Request{Omit: []string{"temperature", "logprobs",
			"top_logprobs"}}, config.Request{},
			`{"model":"m","messages":[{}],"a\",\"model\":\"other":1,"\ud800":2,"max_tokens":9`, dialect.Chat, ""},
		{"a line names its endpoint", batch, &config.Request{Endpoint: "embeddings", BodyModel: override.BodyModel,
			Omit: []string{"logprobs", "top_logprobs"}}, config.Request{},
			`{"model":"m","messages":[{"role":"user","content":"u"}],"max_tokens":3,"temperature":0.5`, dialect.Chat, ""},
	} {
		d := dialect.Plain
		if strings.Contains(c.line, "custom_id") {
			d = dialect.OpenAI
		}
		got, e, err := sent(t, d, c.line, c.run, c.engine)
		if c.wantRefused != "" {
			if fault.ClassOf(err) != fault.Refused || !strings.Contains(err.Error(), c.wantRefused) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" || e != c.endpoint {
			t.Errorf("%s: to %s, %v\n%s", c.name, e, err, diff)
		}
	}
}

func TestParametersOfPlainRowsAreSentAndComeBack(t *testing.T) {
	t.Parallel()
	const line = `{"id":"t","tools":[ {"type":"function"} ],"messages":[{"role":"user"}],"max_tokens":5,` +
		`"temperature":0,"stop":null,` +
		`"model":"other","user":"u","n":3,"priority":1,"metadata":{"k":1},"prompt":null}`
	got, e, err := sent(t, dialect.Plain, line, nil, config.Request{})
	want := `{"model":"m","messages":[{"role":"user"}],"tools":[{"type":"function"}],"max_tokens":5,"temperature":0,` +
		`"logprobs":true,"top_logprobs":2`
	if err != nil || e != dialect.Chat || got != want {
		t.Errorf("to %s, %v\ngot  %s\nwant %s", e, err, got, want)
	}
	it := parsed(t, dialect.Plain, line)
	row := string(dialect.AppendOutput(nil, it, dialect.Model{URI: "m"}, dialect.Result{ID: "t", Answers: answers(1)}))
	for _, column := range []string{`"tools":[ {"type":"function"} ]`, `"max_tokens":5`, `"temperature":0`, `"stop":null`,
		`"model":"other"`, `"user":"u"`, `"n":3`, `"metadata":{"k":1}`} {
		if !strings.Contains(row, column) {
			t.Errorf("the row lacks %s: %s", column, row)
		}
	}
	if it.AnswerCount(config.Sampling{}) != 1 {
		t.Error("the column n asks for several answers")
	}
}

// The ids of version 2 are golden: they never change.
func TestItemIDsOfVersion2(t *testing.T) {
	t.Parallel()
	plain, request := dialect.Model{URI: "m", ID: identity.Model("m", "")}, &config.Request{Endpoint: "chat",
		Extra: map[string]any{"b": int64(1), "a": "x"}, Omit: []string{"seed", "logprobs"},
		Headers: map[string]string{"x": "y"}}
	with := dialect.NewModel("m", plain.ID, config.Run{Request: request})
	for _, c := range []struct {
		name, line string
		m          dialect.Model
		more, want string
	}{
		{"version 1", `{"prompt":"p","tag":1}`, plain, "",
			"03fb247c2182931b6773f68ddb02a3fa85f556d39c28b9e7124cfa68b6422cb2"},
		{"a parameter", `{"prompt":"p","temperature":0.50}`, plain, `{"parameters":{"temperature":0.50}}`,
			"41b1811d2b542c1427c1b324460cbcb7433f3a04b2fbd27d01491b1cda0df801"},
		{"parameters in another order", `{"top_p":1,"prompt":"p","temperature":0.50}`, plain,
			`{"parameters":{"temperature":0.50,"top_p":1}}`, "98b54c12464ace5a51c9b1c8f91022670ba9c347c2fc4655a7ead3c5c5760fc0"},
		{"a [request]", `{"prompt":"p"}`, with,
			`{"request":{"endpoint":"chat","extra":{"a":"x","b":1},"omit":["logprobs","seed"]}}`,
			"4b19c8c3f380dbb2a2d2fe0a6d31d993fdd3c0384b247373ef2250de544a0d9d"},
		{"both", `{"prompt":"p","temperature":0.50}`, with, `{"parameters":{"temperature":0.50},"request":` +
			`{"endpoint":"chat","extra":{"a":"x","b":1},"omit":["logprobs","seed"]}}`,
			"41d6aa3bd8981b4c3b7201bf29d43c6b9b1b2bbbbc8a529d264f516a706ca9fd"},
	} {
		got := parsed(t, dialect.Plain, c.line).ItemID(c.m, 7)
		formula := identity.Item2(c.m.ID, []byte(`"p"`), c.m.Params, []byte(c.more), 7)
		if c.more == "" {
			formula = identity.Item(c.m.ID, []byte(`"p"`), c.m.Params, 7)
		}
		if got != formula || got.String() != c.want {
			t.Errorf("%s: %s, by the formula %s, want %s", c.name, got, formula, c.want)
		}
	}
	a := parsed(t, dialect.Plain, `{"prompt":"p","temperature":0}`)
	b := parsed(t, dialect.Plain, `{"prompt":"p","temperature":1}`)
	if a.RequestDigest() == b.RequestDigest() {
		t.Error("rows with other parameters count as the same request")
	}
}

func TestURLsOfLines(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]dialect.Endpoint{
		"/v1/chat/completions": dialect.Chat, "/chat/completions": dialect.Chat, "/v1/completions": dialect.Completion,
		"https://api.openai.com/v1/chat/completions":                                             dialect.Chat,
		"https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-06": dialect.Chat,
		"/openai/v1/completions": dialect.Completion, "/v1/responses": dialect.Responses,
		"/v1/embeddings": dialect.Embeddings, "/v2/rerank": dialect.Rerank, "/score": dialect.Score,
		"/v1/models": "", "chat/completions": "", "/v1/chat/completionsx": "", "/v1/images/generations": "",
	} {
		it, err := dialect.Parse(dialect.OpenAI, []byte(`{"custom_id":"x","method":"post","url":"`+url+
			`","body":{"messages":[{}],"prompt":"p","input":"i","query":"q","documents":[]}}`))
		if (err == nil) != (want != "") || err == nil && it.Endpoint != want {
			t.Errorf("%s: %s, %v", url, it.Endpoint, err)
		}
	}
}

func TestNullColumnsAreMissing(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]dialect.Endpoint{
		`{"id":"a","prompt":"hi","messages":null}`:                             dialect.Completion,
		`{"id":null,"prompt":null,"messages":[{"role":"user","content":"x"}]}`: dialect.Chat,
	} {
		if it := parsed(t, dialect.Plain, line); it.Endpoint != want {
			t.Errorf("%s: %s", line, it.Endpoint)
		}
	}
	if _, err := dialect.Parse(dialect.Plain,
		[]byte(`{"prompt":null,"messages":null}`)); fault.ClassOf(err) != fault.InvalidLine {
		t.Errorf("two nulls: %v", err)
	}
}

// An answer without choices is a row: vectors and scores as the server wrote them.
func TestAnswersWithoutChoicesAreRows(t *testing.T) {
	t.Parallel()
	answer := dialect.Answer{Usage: dialect.Usage{PromptTokens: 3}, Rest: dialect.Rest{
		Body: []byte(`{"data":[{"embedding":[1.50,-2e-3],"index":0}],"model":"m","object":"list",` +
			`"usage":{"prompt_tokens":3}}`)}}
	it := parsed(t, dialect.OpenAI, `{"custom_id":"a","url":"/v1/embeddings","body":{"input":"i"}}`)
	row := string(dialect.AppendOutput(nil, it, dialect.Model{URI: "m"}, dialect.Result{ID: "a",
		Answers: []dialect.Answer{answer}}))
	if want := `"body":` + string(answer.Rest.Body) + `},"error":null}`; !strings.Contains(row, want) {
		t.Errorf("%s lacks %s", row, want)
	}
	it = parsed(t, dialect.Plain, `{"prompt":"i"}`)
	row = string(dialect.AppendOutput(nil, it, dialect.Model{URI: "m"}, dialect.Result{ID: "a",
		Answers: []dialect.Answer{answer}}))
	if want := `"response":{"data":[{"embedding":[1.50,-2e-3],"index":0}]}`; !strings.Contains(row, want) {
		t.Errorf("%s lacks %s", row, want)
	}
}

func TestNumberAsCustomIDComesBackOnItsErrorRow(t *testing.T) {
	t.Parallel()
	it, err := dialect.Parse(dialect.OpenAI, []byte(`{"custom_id":12,"url":"/v1/completions","body":{"prompt":"p"}}`))
	if fault.ClassOf(err) != fault.InvalidLine {
		t.Fatal(err)
	}
	row := string(dialect.AppendError(nil, dialect.OpenAI, it.Failure("", dialect.Place{}, fault.InvalidLine, "x")))
	if !strings.Contains(row, `"custom_id":12,`) {
		t.Errorf("the row is %s", row)
	}
}
