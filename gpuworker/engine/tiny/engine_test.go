package tiny_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/engine/tiny/echotest"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/fault"
)

func TestTinyEngineConforms(t *testing.T) {
	t.Parallel()
	echo := func(t *testing.T) engine.Engine {
		return echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{})
	}
	short := func(t *testing.T) engine.Engine {
		p := echotest.LongEcho(t)
		p.Positions = 64
		return echotest.Engine(t, p, scheduler.Config{})
	}
	refused := func(name string, r engine.Request) enginetest.Fault {
		return enginetest.Fault{Name: name, Engine: echo, Request: r, Kind: fault.Invalid, Class: fault.Refused}
	}
	enginetest.Run(t, enginetest.Subject{
		New: echo,
		Stuck: func(t *testing.T) engine.Engine {
			return echotest.Engine(t, echotest.Endless(), scheduler.Config{})
		},
		Model: echotest.ModelName,
		Faults: []enginetest.Fault{
			{
				Name: "C19 too long", Engine: short, Request: enginetest.ChatRequest(strings.Repeat("x", 64)),
				Kind: fault.Invalid, Class: fault.TooLong,
			},
			{
				Name: "much too long", Engine: short, Request: enginetest.CompletionRequest(strings.Repeat("x", 1<<20)),
				Kind: fault.Invalid, Class: fault.TooLong,
			},
			{
				Name: "NaN logits", Request: enginetest.ChatRequest("say !"),
				Kind: fault.Corrupt, Class: fault.Engine,
				Engine: func(t *testing.T) engine.Engine {
					p := echotest.LongEcho(t)
					p.NaNToken = '!'
					return echotest.Engine(t, p, scheduler.Config{})
				},
			},
			refused("negative temperature", enginetest.ChatRequest("x", `"temperature":-1`)),
			refused("temperature that is a string", enginetest.ChatRequest("x", `"temperature":"hot"`)),
			refused("two answers", enginetest.ChatRequest("x", `"n":2`)),
			refused("tools", enginetest.ChatRequest("x", `"tools":[{}]`)),
			refused("invalid JSON", engine.Request{Endpoint: engine.Chat, Body: []byte("hello")}),
			refused("no messages", engine.Request{Endpoint: engine.Chat, Body: []byte("{}")}),
			refused("unknown endpoint", engine.Request{Endpoint: "embedding", Body: []byte("{}")}),
		},
	})
}

func TestAnswersEndWhereTheRequestSays(t *testing.T) {
	t.Parallel()
	end := echotest.Bytes(t).EndOfText()
	for _, c := range []struct {
		name, prompt, extra string
		text, finish        string
		clamped             int64
	}{
		{name: "at the end of the text", prompt: "hello", text: "helloaaaaaaaa", finish: "stop"},
		{name: "after max_tokens", prompt: "hello", extra: `"max_tokens":3`, text: "hel", finish: "length"},
		{
			name: "after max_completion_tokens", prompt: "hello", extra: `"max_completion_tokens":3`,
			text: "hel", finish: "length",
		},
		{
			name: "before a stop string across tokens", prompt: "one two three", extra: `"stop":"two"`,
			text: "one ", finish: "stop",
		},
		{
			name: "before the first of several stop strings", prompt: "one two three", extra: `"stop":["three","wo",""]`,
			text: "one t", finish: "stop",
		},
		{
			name: "not at a prefix of a stop string", prompt: "abab abac",
			extra: `"stop":["abad","babab"],"max_tokens":9`, text: "abab abac", finish: "length",
		},
		{
			name: "before a stop string in the last token", prompt: "hello", extra: `"stop":"l","max_tokens":3`,
			text: "he", finish: "stop",
		},
		{
			name: "after a stop string that is kept", prompt: "one two",
			extra: `"stop":"tw","include_stop_str_in_output":true`, text: "one tw", finish: "stop",
		},
		{
			name: "at a stop string after a multi-byte character", prompt: "aé!b", extra: `"stop":"!"`,
			text: "aé", finish: "stop",
		},
		{
			name: "inside a character", prompt: "é€", extra: `"max_tokens":4`,
			text: "é��", finish: "length",
		},
		{
			name: "before a stop token", prompt: "one two", extra: `"stop_token_ids":[119]`,
			text: "one t", finish: "stop",
		},
		{
			name: "not before min_tokens", prompt: "aaab", extra: `"stop":"a","min_tokens":2,"max_tokens":9`,
			text: "aa", finish: "stop",
		},
		{
			name: "at the context", prompt: "0123456789", extra: `"ignore_eos":true,"max_tokens":100`,
			text: "0123456789aaaaaaaa" + strings.Repeat("\x00", 36), finish: "length", clamped: 54,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &echotest.EchoModel{Positions: 64, Echo: 200, End: end, NaNToken: -1}
			e := echotest.Engine(t, m, scheduler.Config{})
			extra := []string{`"temperature":0`}
			if c.extra != "" {
				extra = append(extra, c.extra)
			}
			a, err := e.Answer(t.Context(), enginetest.ChatRequest(c.prompt, extra...), func() {})
			if err != nil || a.Text != c.text || a.FinishReason != c.finish || a.MaxTokens != c.clamped {
				t.Errorf("%q, %q, clamped to %d, %v; want %q, %q, %d",
					a.Text, a.FinishReason, a.MaxTokens, err, c.text, c.finish, c.clamped)
			}
		})
	}
}

func TestTooLongPromptHasVLLMsMessage(t *testing.T) {
	t.Parallel()
	p := echotest.LongEcho(t)
	p.Positions = 64
	e := echotest.Engine(t, p, scheduler.Config{})
	_, err := e.Answer(t.Context(), enginetest.CompletionRequest(strings.Repeat("x", 64)), func() {})
	for _, part := range []string{
		"maximum context length is 64 tokens", "prompt contains 64 input tokens", "requested 1 output tokens",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}

func TestCanceledRequestFreesItsSlotAndReportsUsage(t *testing.T) {
	t.Parallel()
	e := echotest.Engine(t, echotest.Endless(), scheduler.Config{Slots: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reports := 0
	_, err := e.Answer(ctx, enginetest.ChatRequest("hello"), func() {
		if reports++; reports == 3 {
			cancel()
		}
	})
	if u := engine.UsageOf(err); !fault.Is(err, fault.Canceled) || u.PromptTokens != 5 || u.CompletionTokens < 3 {
		t.Errorf("%v with usage %+v, want a Canceled fault with 5 prompt tokens and at least 3 others", err, u)
	}
	a, err := e.Answer(t.Context(), enginetest.ChatRequest("next", `"max_tokens":2`), func() {})
	if err != nil || a.Usage.CompletionTokens != 2 {
		t.Errorf("the next request got %+v, %v; want 2 tokens", a, err)
	}
}

func TestRequestsBeyondTheQueueAreThrottled(t *testing.T) {
	t.Parallel()
	e := echotest.Engine(t, echotest.Endless(), scheduler.Config{Slots: 1, Queue: 1})
	ctx, cancel := context.WithCancel(t.Context())
	running, ended := make(chan struct{}), make(chan error, 2)
	first := true
	go func() {
		_, err := e.Answer(ctx, enginetest.ChatRequest("hello"), func() {
			if first {
				first = false
				close(running)
			}
		})
		ended <- err
	}()
	<-running
	go func() {
		_, err := e.Answer(ctx, enginetest.ChatRequest("hello"), func() {})
		ended <- err
	}()
	for e.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	_, err := e.Answer(t.Context(), enginetest.ChatRequest("hello"), func() {})
	if !fault.Is(err, fault.Throttled) || fault.RetryAfter(err) <= 0 {
		t.Errorf("%v, want a Throttled fault with a delay", err)
	}
	cancel()
	for range 2 {
		if err := <-ended; !fault.Is(err, fault.Canceled) {
			t.Error(err)
		}
	}
}

func TestTokenizerLargerThanTheModelIsRefused(t *testing.T) {
	t.Parallel()
	m := &echotest.EchoModel{Tokens: 7, Positions: 8}
	_, err := tiny.New(tiny.Config{Name: "small", Model: m, Tokenizer: echotest.Bytes(t)})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "has 7 tokens") {
		t.Errorf("%v, want an Invalid fault", err)
	}
}

func TestLogprobsHaveTheFormatOfTheEndpoint(t *testing.T) {
	t.Parallel()
	e := echotest.Engine(t, echotest.LongEcho(t), scheduler.Config{})
	for _, c := range []struct {
		r    engine.Request
		want string
	}{
		{enginetest.ChatRequest("é", `"logprobs":true,"top_logprobs":1,"max_tokens":2`),
			`{"content":[{"token":"bytes:\\xc3","logprob":0,"bytes":[195],` +
				`"top_logprobs":[{"token":"bytes:\\xc3","logprob":0,"bytes":[195]}]},` +
				`{"token":"bytes:\\xa9","logprob":0,"bytes":[169],` +
				`"top_logprobs":[{"token":"bytes:\\xa9","logprob":0,"bytes":[169]}]}]}`},
		{enginetest.CompletionRequest("hi", `"logprobs":1,"max_tokens":2`),
			`{"tokens":["h","i"],"token_logprobs":[0,0],"top_logprobs":[{"h":0},{"i":0}],"text_offset":[0,1]}`},
		{enginetest.CompletionRequest("hi", `"max_tokens":2`), ""},
	} {
		a, err := e.Answer(t.Context(), c.r, func() {})
		if err != nil || string(a.Logprobs) != c.want {
			t.Errorf("%s:\n%s, %v; want\n%s", c.r.Body, a.Logprobs, err, c.want)
		}
	}
}

func TestCanceledErrorHasTheCause(t *testing.T) {
	t.Parallel()
	why := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	e := echotest.Engine(t, echotest.Endless(), scheduler.Config{})
	_, err := e.Answer(ctx, enginetest.ChatRequest("hello"), func() { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("%v, want an error with the cause %v", err, why)
	}
}
