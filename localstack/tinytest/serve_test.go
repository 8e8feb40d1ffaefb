package tinytest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/openai"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/engine/tiny/echotest"
	"rollout/gpuworker/serve"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/localstack/tinytest"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// start serves the engine, without request limits, until the test ends.
func start(t testing.TB, e *tiny.Engine) string {
	t.Helper()
	h := httptest.NewServer(handler(e))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return h.URL
}

func handler(e *tiny.Engine) http.Handler {
	var seed atomic.Uint64
	return serve.New(serve.Config{
		Engine: e, Version: "v1", Clock: clock.System{}, Log: slog.New(slog.DiscardHandler),
		Rand: func() uint64 { return seed.Add(1) },
	})
}

// untrained returns an engine with an untrained decoder.
func untrained(t testing.TB) *tiny.Engine {
	t.Helper()
	c := tinytest.Config()
	c.Context = 64
	decoder := tiny.Decoder(tinytest.Model(t, c), 1)
	e, err := tiny.New(tiny.Config{Name: "untrained", Model: decoder, Tokenizer: tinytest.Tokenizer(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestServerConformsThroughOurClient(t *testing.T) {
	t.Parallel()
	client := func(p *echotest.EchoModel) func(t *testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine {
			url := start(t, echotest.Engine(t, p, scheduler.Config{}))
			c, err := openai.New(openai.Config{BaseURL: url, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
	}
	echo := func(t *testing.T) engine.Engine { return client(echotest.LongEcho(t))(t) }
	with := func(change func(*echotest.EchoModel)) func(t *testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine {
			p := echotest.LongEcho(t)
			change(p)
			return client(p)(t)
		}
	}
	enginetest.Run(t, enginetest.Subject{
		New:   func(t *testing.T) engine.Engine { return seededClient{echo(t)} },
		Stuck: func(t *testing.T) engine.Engine { return seededClient{client(echotest.Endless())(t)} },
		Model: echotest.ModelName,
		Faults: []enginetest.Fault{
			{
				Name: "C19 too long", Engine: with(func(p *echotest.EchoModel) { p.Positions = 64 }),
				Request: withSeed(enginetest.ChatRequest(strings.Repeat("x", 64))),
				Kind:    fault.Invalid, Class: fault.TooLong,
			},
			{
				Name: "NaN logits", Engine: with(func(p *echotest.EchoModel) { p.NaNToken = '!' }),
				Request: withSeed(enginetest.ChatRequest("say !")),
				Kind:    fault.Corrupt, Class: fault.Engine,
			},
			{
				Name: "wrong parameter", Engine: echo, Request: withSeed(enginetest.ChatRequest("x", `"top_p":2`)),
				Kind: fault.Invalid, Class: fault.Refused,
			},
			{Name: "other model", Engine: echo, Request: enginetest.ChatRequest("x"), Kind: fault.Denied},
		},
	})
}

// withSeed replaces the model of one of the suite's requests by a seed. The suite
// names a model that is not served, and expects equal answers to requests without a
// seed.
func withSeed(r engine.Request) engine.Request {
	r.Body = bytes.Replace(r.Body, []byte(`"model":"m",`), []byte(`"seed":1,`), 1)
	return r
}

// seededClient sends requests withSeed.
type seededClient struct{ engine.Engine }

func (c seededClient) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	return c.Engine.Answer(ctx, withSeed(r), progress)
}

func TestOurClientReadsMetricsAndLowersMaxTokens(t *testing.T) {
	t.Parallel()
	c, err := openai.New(openai.Config{BaseURL: start(t, untrained(t)), ClampMaxTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v, err := c.Metrics(t.Context())
	if err != nil || v.Running != 0 || v.Waiting != 0 || v.KVCacheUsage != 0 || v.Preempted != 0 || v.Start == "" {
		t.Errorf("metrics of an idle server are %+v, %v", v, err)
	}
	body := []byte(`{"prompt":"light","max_tokens":1000,"ignore_eos":true}`)
	a, err := c.Answer(t.Context(), engine.Request{Endpoint: engine.Completion, Body: body}, func() {})
	if err != nil || a.MaxTokens != 64-a.Usage.PromptTokens || a.Usage.CompletionTokens != a.MaxTokens ||
		a.FinishReason != "length" {
		t.Errorf("%+v, %v; want an answer that fills the context of 64 tokens", a, err)
	}
}

// reply has the members of all endpoints' answers that the tests use.
type reply struct {
	Object  string
	Count   int
	Tokens  []int32
	Prompt  string
	Choices []struct {
		Index    int
		Text     string
		Message  struct{ Role, Content string }
		Delta    struct{ Role, Content string }
		Logprobs *struct {
			Tokens  []string
			Values  []*float32 `json:"token_logprobs"`
			Offsets []int      `json:"text_offset"`
			Content []struct{ Token string }
		}
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	}
	Error struct {
		Message, Type string
		Param         *string
		Code          int
	}
	Data []struct {
		ID  string
		Len int `json:"max_model_len"`
	}
}

func post(t *testing.T, url, body string) (int, reply) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, resp)
}

func decode(t *testing.T, resp *http.Response) (int, reply) {
	t.Helper()
	defer resp.Body.Close()
	var r reply
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil && resp.ContentLength != 0 {
		t.Fatal(err)
	}
	return resp.StatusCode, r
}

func TestCompletionsOfAllPromptForms(t *testing.T) {
	t.Parallel()
	url := start(t, echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{}))
	for _, c := range []struct {
		name, body string
		texts      []string
		finish     string
		prompt     int64
		completion int64
	}{
		{"one prompt", `{"prompt":"hello","temperature":0}`, []string{"helloaaaaaaaa"}, "stop", 5, 14},
		{"list of prompts", `{"prompt":["one","two"],"max_tokens":3}`, []string{"one", "two"}, "length", 6, 6},
		{"tokens", `{"prompt":[104,105],"max_tokens":2}`, []string{"hi"}, "length", 2, 2},
		{"lists of tokens", `{"prompt":[[104,105],[72,73]],"max_tokens":2}`, []string{"hi", "HI"}, "length", 4, 4},
		{
			"several answers", `{"prompt":["one","two"],"n":2,"max_tokens":3}`,
			[]string{"one", "one", "two", "two"}, "length", 6, 12,
		},
		{"echo", `{"prompt":"hi","echo":true,"max_tokens":2}`, []string{"hihi"}, "length", 2, 2},
		{"echo of tokens", `{"prompt":[104,105],"echo":true,"max_tokens":1}`, []string{"hih"}, "length", 2, 1},
		{"only echo", `{"prompt":"hi","echo":true,"max_tokens":0}`, []string{"hi"}, "length", 2, 0},
		{"stop string", `{"prompt":"one two","stop":[" "]}`, []string{"one"}, "stop", 7, 4},
		{"empty prompt", `{"prompt":"","temperature":0}`, []string{"aaaaaaaa"}, "stop", 1, 9},
	} {
		status, r := post(t, url+"/v1/completions", c.body)
		if status != http.StatusOK || r.Object != "text_completion" || len(r.Choices) != len(c.texts) {
			t.Errorf("%s: %d, %+v", c.name, status, r)
			continue
		}
		for i, text := range c.texts {
			ch := r.Choices[i]
			if ch.Index != i || ch.Text != text || ch.Finish == nil || *ch.Finish != c.finish || ch.Logprobs != nil {
				t.Errorf("%s: choice %d is %+v, want %q", c.name, i, ch, text)
			}
		}
		if u := r.Usage; u == nil || u.Prompt != c.prompt || u.Completion != c.completion ||
			u.Total != u.Prompt+u.Completion {
			t.Errorf("%s: usage %+v, want %d and %d tokens", c.name, u, c.prompt, c.completion)
		}
	}
}

func TestSeedsMakeAnswersRepeatable(t *testing.T) {
	t.Parallel()
	url := start(t, echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{}))
	texts := func(body string) (out []string) {
		_, r := post(t, url+"/v1/chat/completions", body)
		for _, c := range r.Choices {
			out = append(out, c.Message.Content)
		}
		return out
	}
	const seeded = `{"messages":[{"role":"user","content":"x"}],"n":3,"seed":7}`
	first := texts(seeded)
	if again := texts(seeded); fmt.Sprint(first) != fmt.Sprint(again) || len(first) != 3 {
		t.Errorf("the same request got %q, then %q", first, again)
	}
	if first[0] == first[1] || first[1] == first[2] {
		t.Errorf("the answers to one request are equal: %q", first)
	}
	const unseeded = `{"messages":[{"role":"user","content":"x"}]}`
	if one, two := texts(unseeded), texts(unseeded); fmt.Sprint(one) == fmt.Sprint(two) {
		t.Errorf("two requests without a seed both got %q", one)
	}
}

func TestEchoHasLogprobs(t *testing.T) {
	t.Parallel()
	url := start(t, untrained(t))
	const body = `{"prompt":"In the light","echo":true,"logprobs":1,"max_tokens":2,"temperature":0`
	_, r := post(t, url+"/v1/completions", body+"}")
	l := r.Choices[0].Logprobs
	if l == nil || int64(len(l.Tokens)) != r.Usage.Total || l.Values[0] != nil || l.Values[1] == nil ||
		strings.Join(l.Tokens[:r.Usage.Prompt], "") != "In the light" {
		t.Fatalf("%+v: want log probabilities of the prompt and the answer", r)
	}
	if got := l.Offsets[r.Usage.Prompt]; got != len("In the light") {
		t.Errorf("the answer begins at %d, want %d", got, len("In the light"))
	}
	streamed := ""
	var tokens []string
	for _, c := range stream(t, url+"/v1/completions", body+`,"stream":true}`) {
		streamed += c.Choices[0].Text
		tokens = append(tokens, c.Choices[0].Logprobs.Tokens...)
	}
	if streamed != r.Choices[0].Text || fmt.Sprint(tokens) != fmt.Sprint(l.Tokens) {
		t.Errorf("streamed: %q, %q; whole: %q, %q", streamed, tokens, r.Choices[0].Text, l.Tokens)
	}
}

// stream returns the events of a stream. The test fails if the stream has no end.
func stream(t *testing.T, url, body string) (events []reply) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return events
		}
		var e reply
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		events = append(events, e)
	}
	t.Fatalf("%s: the stream ended without [DONE], after %+v", body, events)
	return nil
}

func TestStreamsHaveTheSameContentAsAnswers(t *testing.T) {
	t.Parallel()
	url := start(t, echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{}))
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"é one 😀 two"}],"n":2,"seed":1,"stop":["wo"]`,
		"/v1/completions":      `{"prompt":["é one 😀 two","x"],"n":2,"seed":1,"stop":["wo"],"echo":true`,
	} {
		_, whole := post(t, url+path, body+"}")
		texts, finish := make([]string, len(whole.Choices)), make([]string, len(whole.Choices))
		events := stream(t, url+path, body+`,"stream":true,"stream_options":{"include_usage":true}}`)
		for _, e := range events {
			for _, c := range e.Choices {
				texts[c.Index] += c.Text + c.Delta.Content
				if c.Finish != nil {
					finish[c.Index] += *c.Finish
				}
			}
		}
		for i, c := range whole.Choices {
			if text := c.Text + c.Message.Content; texts[i] != text || finish[i] != *c.Finish {
				t.Errorf("%s: choice %d streamed %q, %q; whole %q, %q", path, i, texts[i], finish[i], text, *c.Finish)
			}
		}
		last := events[len(events)-1]
		if last.Usage == nil || *last.Usage != *whole.Usage || len(last.Choices) != 0 {
			t.Errorf("%s: usage %+v, want %+v", path, last.Usage, whole.Usage)
		}
		e := events[0]
		if path == "/v1/chat/completions" &&
			(e.Object != "chat.completion.chunk" || e.Choices[0].Delta.Role != "assistant" || e.Usage != nil) {
			t.Errorf("the first event is %+v, want one with the role", e)
		}
	}
}

func TestErrorsHaveStatusParamAndMessage(t *testing.T) {
	t.Parallel()
	p := echotest.LongEcho(t)
	p.Positions = 64
	url := start(t, echotest.Engine(t, p, scheduler.Config{}))
	for _, c := range []struct {
		path, body string
		status     int
		param      string // of the error
		message    string // a part of it
	}{
		{"/v1/completions", `{`, 400, "", "not a JSON object"},
		{"/v1/completions", `{}`, 400, "prompt", "missing"},
		{"/v1/completions", `{"prompt":"x","temperature":-1}`, 400, "temperature", "from 0"},
		{"/v1/completions", `{"prompt":"x","max_tokens":0}`, 400, "max_tokens", "at least 1"},
		{
			"/v1/completions", `{"prompt":"x","max_tokens":64}`, 400, "",
			"maximum context length is 64 tokens. " +
				"However, you requested 64 output tokens and your prompt contains 1 input",
		},
		{"/v1/completions", `{"prompt":"x","model":"gpt-9"}`, 404, "model", "`gpt-9` does not exist"},
		{"/v1/completions", `{"prompt":"x","stream":true,"top_p":7}`, 400, "top_p", "at most 1"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages", "from 1"},
		{"/tokenize", `{}`, 400, "prompt", "missing"},
		{"/detokenize", `{"tokens":[9999]}`, 400, "tokens", "9999"},
	} {
		status, r := post(t, url+c.path, c.body)
		param := ""
		if r.Error.Param != nil {
			param = *r.Error.Param
		}
		if status != c.status || r.Error.Code != c.status || param != c.param ||
			!strings.Contains(r.Error.Message, c.message) || r.Error.Type == "" {
			t.Errorf("%s %s: %d, %+v; want %d about %q with %q",
				c.path, c.body, status, r.Error, c.status, c.param, c.message)
		}
	}
	for path, want := range map[string]int{
		"/v1/nothing": 404, "/v1/completions": 405, "/v1/models/gpt-9": 404, "/v1/models/echo": 200,
		"/ping": 200, "/health": 200, "/version": 200,
	} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestLargeRequestsAreRefused(t *testing.T) {
	t.Parallel()
	e := echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{})
	h := httptest.NewServer(serve.Bounds().Guard(secret.Value{}, handler(e)))
	defer h.Close()
	status, r := post(t, h.URL+"/v1/completions", `{"prompt":"`+strings.Repeat("x", 1<<20)+`"}`)
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d, %+v; want 413", status, r)
	}
}

func TestDetokenizeReversesTokenize(t *testing.T) {
	t.Parallel()
	url := start(t, untrained(t))
	const text = "In the beginning 光 \u0000 was naïve"
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	_, r := post(t, url+"/tokenize", fmt.Sprintf(`{"prompt":%s,"return_token_strs":true}`, quoted))
	if r.Count != len(r.Tokens) || r.Count == 0 {
		t.Fatalf("%+v", r)
	}
	ids, err := json.Marshal(r.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	if _, back := post(t, url+"/detokenize", `{"tokens":`+string(ids)+"}"); back.Prompt != text {
		t.Errorf("the tokens of %q have the text %q", text, back.Prompt)
	}
	_, chat := post(t, url+"/tokenize", fmt.Sprintf(`{"messages":[{"role":"user","content":%s}]}`, quoted))
	if chat.Count != r.Count {
		t.Errorf("%q has %d tokens as a chat, %d as a prompt", text, chat.Count, r.Count)
	}
}

func TestDisconnectedClientCancelsItsRequest(t *testing.T) {
	t.Parallel()
	e := echotest.Engine(t, echotest.Endless(), scheduler.Config{})
	url := start(t, e)
	for _, extra := range []string{"", `,"stream":true`} {
		ctx, cancel := context.WithCancel(t.Context())
		body := strings.NewReader(`{"prompt":"x","max_tokens":100000000` + extra + "}")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for e.Stats().Running == 0 {
				runtime.Gosched()
			}
			cancel()
		}()
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil {
			t.Error("the canceled request got a complete answer")
		}
		for e.Stats().Running > 0 {
			runtime.Gosched()
		}
	}
}

// TestClientThatDoesNotReadDelaysNoOther sends a request for a long stream and never
// reads the answer.
func TestClientThatDoesNotReadDelaysNoOther(t *testing.T) {
	t.Parallel()
	e := echotest.Engine(t, echotest.Endless(), scheduler.Config{})
	url := start(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := strings.NewReader(`{"prompt":"x","max_tokens":100000,"stream":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 3 {
		status, r := post(t, url+"/v1/completions", `{"prompt":"hello","max_tokens":200}`)
		if status != http.StatusOK || r.Usage.Completion != 200 {
			t.Errorf("%d, %+v; want 200 tokens", status, r)
		}
	}
}

func TestMetricsHaveVLLMsNames(t *testing.T) {
	t.Parallel()
	url := start(t, echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{}))
	post(t, url+"/v1/completions", `{"prompt":"hello","max_tokens":3}`)
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`vllm:num_requests_running{engine="0",model_name="echo"} 0`,
		`vllm:num_requests_waiting{engine="0",model_name="echo"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="echo"} 0`,
		`vllm:num_preemptions_total{engine="0",model_name="echo"} 0`,
		`vllm:prompt_tokens_total{engine="0",model_name="echo"} 5`,
		`vllm:generation_tokens_total{engine="0",model_name="echo"} 3`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="echo"} 1`,
		`vllm:e2e_request_latency_seconds_count{engine="0",model_name="echo"} 1`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="echo"} 1`,
		`vllm:request_queue_time_seconds_count{engine="0",model_name="echo"} 1`,
		"process_start_time_seconds ",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the metrics have no %q:\n%s", want, body)
		}
	}
}
