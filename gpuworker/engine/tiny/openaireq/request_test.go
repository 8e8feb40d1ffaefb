package openaireq_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/sampling"
	"rollout/shared/fault"
)

const vocab = 1000

func TestRequestsAreParsedLikeVLLM(t *testing.T) {
	t.Parallel()
	plain := func(change func(*openaireq.Request)) openaireq.Request {
		r := openaireq.Request{N: 1, Sampling: sampling.Default(), Max: -1, Logprobs: -1}
		r.Prompts = []openaireq.Prompt{{Text: "a"}}
		change(&r)
		return r
	}
	chat := func(change func(*openaireq.Request)) openaireq.Request {
		r := openaireq.Request{Chat: true, N: 1, Sampling: sampling.Default(), Max: -1, Logprobs: -1}
		r.Messages = []openaireq.Message{{Role: "user", Text: "a"}}
		change(&r)
		return r
	}
	const user = `"messages":[{"role":"user","content":"a"}]`
	for _, c := range []struct {
		body string
		want openaireq.Request
	}{
		{`{"prompt":"a"}`, plain(func(*openaireq.Request) {})},
		{
			`{"prompt":"a","unknown":[1],"user":"u","seed":null,"stop":null,"logprobs":null,"logit_bias":null}`,
			plain(func(*openaireq.Request) {}),
		},
		{`{"prompt":["a","b"],"n":3,"model":"m"}`, plain(func(r *openaireq.Request) {
			r.Prompts, r.N, r.Model = []openaireq.Prompt{{Text: "a"}, {Text: "b"}}, 3, "m"
		})},
		{`{"prompt":[1,2]}`, plain(func(r *openaireq.Request) {
			r.Prompts = []openaireq.Prompt{{Tokens: []int32{1, 2}}}
		})},
		{`{"prompt":[[1],[2,3],"c"]}`, plain(func(r *openaireq.Request) {
			r.Prompts = []openaireq.Prompt{{Tokens: []int32{1}}, {Tokens: []int32{2, 3}}, {Text: "c"}}
		})},
		{
			`{"prompt":"a","temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"repetition_penalty":1.5,` +
				`"presence_penalty":1,"frequency_penalty":-1,"logit_bias":{"7":-2}}`,
			plain(func(r *openaireq.Request) {
				r.Sampling = sampling.Params{
					Temperature: 0.5, TopP: 0.25, TopK: 7, MinP: 0.125, Repetition: 1.5, Presence: 1, Frequency: -1,
					Bias: map[int32]float32{7: -2},
				}
			}),
		},
		{
			`{"prompt":"a","seed":-1,"max_tokens":9,"min_tokens":2,"stop":"x","stop_token_ids":[5],"ignore_eos":true,` +
				`"include_stop_str_in_output":true}`,
			plain(func(r *openaireq.Request) {
				r.Seed, r.HasSeed, r.Max, r.Min = 1<<64-1, true, 9, 2
				r.Stop, r.StopIDs, r.IgnoreEOS, r.KeepStop = []string{"x"}, []int32{5}, true, true
			}),
		},
		{`{"prompt":"a","logprobs":0,"echo":true,"stream":true,"stream_options":{"include_usage":true}}`,
			plain(func(r *openaireq.Request) { r.Logprobs, r.Echo, r.Stream, r.IncludeUsage = 0, true, true, true })},
		{`{` + user + `,"logprobs":true}`, chat(func(r *openaireq.Request) { r.Logprobs = 0 })},
		{`{` + user + `,"logprobs":true,"top_logprobs":4}`, chat(func(r *openaireq.Request) { r.Logprobs = 4 })},
		{`{` + user + `,"max_completion_tokens":4}`, chat(func(r *openaireq.Request) { r.Max = 4 })},
		{
			`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` +
				`{"role":"assistant","content":null}],"tools":[{}],"tool_choice":"none"}`,
			chat(func(r *openaireq.Request) {
				r.Messages = []openaireq.Message{{Role: "user", Text: "ab"}, {Role: "assistant"}}
			}),
		},
		{"{\"prompt\":\"a\\ud800\xff\"}", plain(func(r *openaireq.Request) { r.Prompts[0].Text = "a\uFFFD\uFFFD" })},
	} {
		read := openaireq.ParseCompletion
		if c.want.Chat {
			read = openaireq.ParseChat
		}
		got, err := read([]byte(c.body), vocab)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, %v; want\n%+v", c.body, got, err, c.want)
		}
	}
}

func TestBadRequestsNameTheMember(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`"a",`, 300)
	for _, c := range []struct{ member, extra string }{
		{"prompt", ``},
		{"prompt", `"prompt":null`},
		{"prompt", `"prompt":7`},
		{"prompt", `"prompt":{}`},
		{"prompt", `"prompt":[]`},
		{"prompt", `"prompt":[1,"a"]`},
		{"prompt", `"prompt":["a",1]`},
		{"prompt", `"prompt":[1000]`},
		{"prompt", `"prompt":[[-1]]`},
		{"prompt", `"prompt":[1.5]`},
		{"prompt", `"prompt":[` + many + `"a"]`},
		{"prompt", `"prompt":["a","b","c"],"n":100`},
		{"temperature", `"temperature":"hot"`},
		{"temperature", `"temperature":-1`},
		{"top_p", `"top_p":0`},
		{"top_k", `"top_k":-5`},
		{"top_k", `"top_k":1.5`},
		{"n", `"n":0`},
		{"n", `"n":1000`},
		{"best_of", `"best_of":2`},
		{"max_tokens", `"max_tokens":-1`},
		{"min_tokens", `"min_tokens":-1`},
		{"stop", `"stop":7`},
		{"stop", `"stop":[7]`},
		{"stop", `"stop":[` + many[:80] + `"a"]`},
		{"stop", fmt.Sprintf(`"stop":%q`, strings.Repeat("x", 300))},
		{"seed", `"seed":1e30`},
		{"logprobs", `"logprobs":true`},
		{"logprobs", `"logprobs":21`},
		{"logit_bias", `"logit_bias":{"x":1}`},
		{"logit_bias", `"logit_bias":{"1000":1}`},
		{"logit_bias.1", `"logit_bias":{"1":"x"}`},
		{"suffix", `"suffix":"z"`},
		{"response_format", `"response_format":{"type":"json_object"}`},
		{"tools", `"tools":[{}]`},
		{"guided_json", `"guided_json":{}`},
		{"stream_options", `"stream_options":{"include_usage":true}`},
	} {
		body := "{" + c.extra + "}"
		if c.member != "prompt" {
			body = `{"prompt":"a",` + c.extra + "}"
		}
		_, err := openaireq.ParseCompletion([]byte(body), vocab)
		var about *sampling.ParamError
		if !errors.As(err, &about) || about.Name != c.member || fault.ClassOf(err) != fault.Refused {
			t.Errorf("%.100s: %v, want an error about %s", body, err, c.member)
		}
	}
	const user = `"messages":[{"role":"user","content":"a"}]`
	for _, c := range []struct{ member, body string }{
		{"messages", `{}`},
		{"messages", `{"messages":[]}`},
		{"messages", `{"messages":["a"]}`},
		{"messages", `{"messages":[{"content":"a"}]}`},
		{"messages", `{"messages":[{"role":"user","content":7}]}`},
		{"messages", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`},
		{"logprobs", `{` + user + `,"logprobs":3}`},
		{"top_logprobs", `{` + user + `,"top_logprobs":3}`},
		{"top_logprobs", `{` + user + `,"logprobs":true,"top_logprobs":33}`},
		{"echo", `{` + user + `,"echo":true}`},
	} {
		_, err := openaireq.ParseChat([]byte(c.body), vocab)
		var about *sampling.ParamError
		if !errors.As(err, &about) || about.Name != c.member {
			t.Errorf("%s: %v, want an error about %s", c.body, err, c.member)
		}
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"prompt":["a",[1]],"stop":["x"],"logit_bias":{"1":2},"n":2}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"logprobs":true,"top_logprobs":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		type parser = func([]byte, int) (openaireq.Request, error)
		for _, parse := range []parser{openaireq.ParseChat, openaireq.ParseCompletion} {
			r, err := parse(body, vocab)
			if err != nil {
				if !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != fault.Refused {
					t.Fatalf("%v of kind %v, want an Invalid fault of class refused", err, fault.KindOf(err))
				}
				continue
			}
			n := len(r.Prompts) * r.N
			if n > openaireq.MaxChoices || r.Logprobs > sampling.MaxTop || r.Sampling.Check(vocab) != nil {
				t.Fatalf("%+v exceeds the bounds of a request", r)
			}
		}
	})
}
