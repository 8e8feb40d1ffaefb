package agentproxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/agentproxy"
	"rollout/gpuworker/engine"
	"rollout/shared/core/cost"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// servers answers with a function, and keeps the bodies that it gets.
type servers struct {
	answer func(r engine.RawRequest) (engine.RawAnswer, error)
	mu     sync.Mutex
	got    []string
}

func (s *servers) Pass(_ context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	s.mu.Lock()
	s.got = append(s.got, string(r.Body))
	s.mu.Unlock()
	return s.answer(r)
}

// says answers with the text.
func says(status int, text string) func(engine.RawRequest) (engine.RawAnswer, error) {
	return func(engine.RawRequest) (engine.RawAnswer, error) {
		return engine.RawAnswer{Status: status, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(text))}, nil
	}
}

const chat = `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`

func newProxy(s *servers, l agentproxy.Limits) *agentproxy.Proxy {
	return agentproxy.New(agentproxy.Options{Servers: s, Model: "pool/model", Limits: l,
		Prices: cost.TokenPrices{Prompt: 1, Completion: 2}, Bodies: onlinewire.NewBodies()})
}

// post posts a body to the proxy.
func post(t *testing.T, p http.Handler, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer of-the-agent")
	p.ServeHTTP(w, r)
	return w
}

func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	const asked = int64(len(`{"model":"pool/model"}`) / 4) // as it is estimated
	stream := strings.Repeat("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", 2)
	counted := func(prompt, completion int) string {
		return fmt.Sprintf("data: {\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}", prompt, completion)
	}
	for name, test := range map[string]struct {
		status             int
		path, answer       string
		prompt, completion int64
	}{
		"whole": {200, "chat/completions", chat, 7, 3},
		"whole over several lines": {200, "completions",
			"{\"choices\":[],\n \"usage\": {\"prompt_tokens\": 7,\n\"completion_tokens\": 3}}\n", 7, 3},
		"embedding": {200, "embeddings", `{"data":[],"usage":{"prompt_tokens":6,"total_tokens":6}}`, 6, 0},
		"response":  {200, "responses", `{"output":[],"usage":{"input_tokens":4,"output_tokens":2}}`, 4, 2},
		"stream": {200, "chat/completions",
			stream + counted(7, 2) + "\n\ndata: [DONE]\n\n", 7, 2},
		"stream that counts up": {200, "chat/completions",
			counted(7, 1) + "\r\n\r\n" + counted(7, 4) + "\r\n\r\n", 7, 4},
		"stream without counts": {200, "chat/completions", stream, asked, 2},
		"stream with several tokens in an event": {200, "chat/completions",
			stream + "data: {\"choices\":[{\"delta\":{\"content\":\"a" + strings.Repeat("b", 40) + "\"}}]}\n\n", asked, 10},
		"events of a response": {200, "responses",
			"event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":4,\"output_tokens\":2}}}\n\n", 4, 2},
		"no counts":       {200, "chat/completions", `{"choices":[]}`, asked, 3},
		"negative counts": {200, "chat/completions", `{"usage":{"prompt_tokens":-7,"completion_tokens":-3}}`, 0, 0},
		"no JSON":         {200, "chat/completions", `"usage"`, asked, 1},
		"refused":         {400, "chat/completions", `{"error":{},"usage":{"prompt_tokens":7}}`, 0, 0},
	} {
		s := &servers{answer: says(test.status, test.answer)}
		p := newProxy(s, agentproxy.Limits{})
		w := post(t, p, "/v1/"+test.path, `{}`)
		estimated := int64(0)
		if test.prompt == asked {
			estimated = 1
		}
		want := agentproxy.Use{Requests: 1, Estimated: estimated,
			PromptTokens: test.prompt, CompletionTokens: test.completion,
			NanoUSD: 1000*test.prompt + 2000*test.completion}
		if got := p.Use(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		if w.Code != test.status || w.Body.String() != test.answer {
			t.Errorf("%s: the agent got %d %s", name, w.Code, w.Body)
		}
	}
}

func TestLimitsRefuseFurtherRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits agentproxy.Limits
		passed int64
	}{
		agentproxy.RequestLimit: {agentproxy.Limits{Requests: 2}, 2},
		agentproxy.TokenLimit:   {agentproxy.Limits{Tokens: 11}, 2},     // 10 a request
		agentproxy.DollarLimit:  {agentproxy.Limits{NanoUSD: 26000}, 2}, // 13000 a request
	} {
		p := newProxy(&servers{answer: says(200, chat)}, test.limits)
		for i := range 4 {
			w := post(t, p, "/v1/chat/completions", `{}`)
			var said struct{ Error onlinewire.Problem }
			_ = json.Unmarshal(w.Body.Bytes(), &said)
			refused := int64(i) >= test.passed
			if refused != (w.Code == http.StatusTooManyRequests) || refused != (w.Header().Get("X-Should-Retry") == "false") ||
				refused != (said.Error.Code == "trial_limit" && strings.Contains(said.Error.Message, name)) {
				t.Errorf("%s: request %d: %d %s", name, i, w.Code, w.Body)
			}
		}
		if use := p.Use(); use.Requests != test.passed || use.Refused != 4-test.passed || use.Limit != name {
			t.Errorf("%s: %+v", name, use)
		}
		select {
		case <-p.Limited():
		default:
			t.Errorf("%s: the limit is not told", name)
		}
	}
}

func TestAnswersOfARequestCountAsRequests(t *testing.T) {
	t.Parallel()
	p := newProxy(&servers{answer: says(200, chat)}, agentproxy.Limits{Requests: 13})
	for body, want := range map[string]int64{`{"n":2}`: 2, `{"prompt":["a","b"],"n":2}`: 4, `{"prompt":[[1],[2],[3]]}`: 3,
		`{"prompt":[1,2,3]}`: 1, `{"prompt":"a"}`: 1, `{"prompt":[]}`: 1} {
		before := p.Use().Requests
		w := post(t, p, "/v1/completions", body)
		if got := p.Use().Requests - before; w.Code != 200 || got != want {
			t.Errorf("%s: %d, counts as %d", body, w.Code, got)
		}
	}
	if w := post(t, p, "/v1/completions", `{"n":2}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("beyond the limit: %d", w.Code)
	}
	if use := p.Use(); use.Requests != 12 || use.Limit != agentproxy.RequestLimit {
		t.Errorf("%+v", use)
	}
}

// An agent that asks for much at once passes its limit by one request at most.
func TestRequestsAtOnceKeepTheLimit(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]agentproxy.Limits{
		agentproxy.TokenLimit:  {Tokens: 100},
		agentproxy.DollarLimit: {NanoUSD: 100_000},
	} {
		running, release := make(chan struct{}, 8), make(chan struct{})
		p := newProxy(&servers{answer: func(r engine.RawRequest) (engine.RawAnswer, error) {
			running <- struct{}{}
			<-release
			return says(200, `{"usage":{"prompt_tokens":40,"completion_tokens":100}}`)(r)
		}}, limits)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { post(t, p, "/v1/chat/completions", `{"max_tokens":60}`) })
		}
		<-running
		close(release)
		all.Wait()
		if use := p.Use(); use.Requests != 1 || use.Refused != 4 || use.Limit != name {
			t.Errorf("%s: %+v", name, use)
		}
	}
}

// An agent that leaves before the count of its tokens comes does not get them for nothing.
func TestTokensOfAnAgentThatLeavesAreCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stream   bool
		answered bool // a part of the answer has come
		want     int64
	}{
		"before a stream":              {true, false, 0},
		"in the middle of it":          {true, true, 1},
		"before a whole answer":        {false, false, 500},
		"in the middle of a whole one": {false, true, 500},
	} {
		ctx, leave := context.WithCancel(t.Context())
		p := newProxy(&servers{answer: func(engine.RawRequest) (engine.RawAnswer, error) {
			if !test.answered {
				leave()
				return engine.RawAnswer{}, ctx.Err()
			}
			pieces, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, "data: {\"choices\":[{}]}\n\n")
				leave()
				_ = w.CloseWithError(context.Canceled)
			}()
			return engine.RawAnswer{Status: 200, Header: http.Header{}, Body: pieces}, nil
		}}, agentproxy.Limits{})
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions",
			strings.NewReader(fmt.Sprintf(`{"stream":%t,"max_tokens":500,"messages":[{"content":%q}]}`, test.stream,
				strings.Repeat("x", 400))))
		p.ServeHTTP(httptest.NewRecorder(), r)
		if use := p.Use(); use.PromptTokens < 100 || use.CompletionTokens != test.want || use.Estimated != 1 ||
			use.Failed > 0 {
			t.Errorf("%s: %+v", name, use)
		}
	}
}

func TestAgentNeedsItsKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{"of-the-agent": 200, "of-another": 401} {
		p := agentproxy.New(agentproxy.Options{Servers: &servers{answer: says(200, chat)}, Bodies: onlinewire.NewBodies(),
			Key: key})
		if w := post(t, p, "/v1/chat/completions", `{}`); w.Code != want {
			t.Errorf("with the key %s: %d", key, w.Code)
		}
	}
}

func TestModelAndCountsAreRolloutsChoice(t *testing.T) {
	t.Parallel()
	const withUsage = `{"model":"pool/model","stream":true,"stream_options":{"include_usage":true}}`
	for body, want := range map[string]string{
		`{"model":"other","messages":[{"content":"é"}],"seed":12345678901234567890}`: `{"messages":[{"content":"é"}],` +
			`"model":"pool/model","seed":12345678901234567890}`,
		`{"stream":true}`:                       withUsage,
		`{"stream":true,"stream_options":null}`: withUsage,
		`{"stream":true,"stream_options":{"include_usage":false,"include_obfuscation":true}}`: `{"model":"pool/model",` +
			`"stream":true,"stream_options":{"include_obfuscation":true,"include_usage":true}}`,
		`{"stream":false}`: `{"model":"pool/model","stream":false}`,
		`{"models":["dear"],"background":true,"store":true,"service_tier":"priority","n":2}`: `{"model":"pool/model","n":2}`,
	} {
		s := &servers{answer: says(200, chat)}
		if w := post(t, newProxy(s, agentproxy.Limits{}), "/v1/chat/completions", body); w.Code != 200 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
			continue
		}
		if s.got[0] != want {
			t.Errorf("%s: passed on as %s, want %s", body, s.got[0], want)
		}
	}
}

func TestBadRequestsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	s := &servers{answer: says(200, chat)}
	p := newProxy(s, agentproxy.Limits{})
	for _, test := range []struct {
		path, body string
		want       int
	}{
		{"/v1/chat/completions", `[]`, 400}, {"/v1/chat/completions", `null`, 400}, {"/v1/chat/completions", `{`, 400},
		{"/v1/chat/completions", `{"stream":true,"stream_options":1}`, 400}, {"/v1/files", `{}`, 404},
		{"/v1/chat/completions", `{"stream":1}`, 400}, {"/v1/chat/completions", `{"stream":"true"}`, 400},
		{"/v1/completions", `{"prompt":["a","b","c"],"n":50}`, 400},
		{"/v1/chat/completions", `{"n":1000000}`, 400}, {"/v1/chat/completions", `{"n":-1}`, 400},
		{"/v1/chat/completions", `{"max_tokens":-1}`, 400},
		{"/v1/chat/completions", `{"x":"` + strings.Repeat("x", 5<<20) + `"}`, 413},
		{"/v1/../admin", `{}`, 404}, {"/metrics", `{}`, 404},
	} {
		if w := post(t, p, test.path, test.body); w.Code != test.want {
			t.Errorf("%s %s: %d, want %d", test.path, test.body, w.Code, test.want)
		}
	}
	use := p.Use()
	use.Forbidden, use.FirstForbidden = 0, ""
	if len(s.got) > 0 || use != (agentproxy.Use{}) {
		t.Errorf("%d requests were passed on, %+v", len(s.got), use)
	}
}

func TestFailuresAreNotTheAgents(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(engine.RawRequest) (engine.RawAnswer, error){
		"no server": func(engine.RawRequest) (engine.RawAnswer, error) {
			return engine.RawAnswer{}, fault.New(fault.Unavailable, "connection refused")
		},
		"the worker's key":   says(http.StatusUnauthorized, `{"error":"key sk-secret is wrong"}`),
		"an unknown packing": packed("br"),
		"damaged packing":    packed("gzip"),
	} {
		p := newProxy(&servers{answer: answer}, agentproxy.Limits{})
		w := post(t, p, "/v1/chat/completions", `{}`)
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "sk-secret") ||
			w.Header().Get("X-Should-Retry") != "" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if use := p.Use(); use.Failed != 1 || use.Limit != "" {
			t.Errorf("%s: %+v", name, use)
		}
	}
}

// What a server answers with these is passed on, and is no answer to the agent.
func TestServersFaultsAreNotTheAgents(t *testing.T) {
	t.Parallel()
	status := 0
	s := &servers{answer: func(r engine.RawRequest) (engine.RawAnswer, error) { return says(status, chat)(r) }}
	p := newProxy(s, agentproxy.Limits{})
	failed := int64(0)
	for _, test := range []struct {
		status int
		faulty bool
		want   int
	}{
		{403, true, 503}, // it may be about the worker's key
		{429, true, 429}, {500, true, 500}, {503, true, 503}, {400, false, 400}, {502, true, 502}, {200, false, 200},
		{403, false, 403}, // the key has worked: it is about the request
		{503, true, 503},
	} {
		status = test.status
		if w := post(t, p, "/v1/chat/completions", `{}`); w.Code != test.want {
			t.Errorf("%d: the agent got %d", test.status, w.Code)
		}
		if test.faulty {
			failed++
		}
		if use := p.Use(); use.Failed != failed || use.LastFailed != test.faulty {
			t.Errorf("%d: %+v, want %d failed", test.status, use, failed)
		}
	}
}

// A request that waits for the memory of others has no answer, and the agent did nothing wrong.
func TestRequestWithoutRoomIsNotTheAgentsFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bodies := onlinewire.NewBodies()
		for range 2 {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
			r.ContentLength = onlinewire.MaxBody
			r.Body = io.NopCloser(io.LimitReader(zeros{}, onlinewire.MaxBody))
			_, release, err := bodies.Read(httptest.NewRecorder(), r, onlinewire.MaxBody, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
		}
		p := agentproxy.New(agentproxy.Options{Servers: &servers{answer: says(200, chat)}, Bodies: bodies})
		if w := post(t, p, "/v1/chat/completions", `{}`); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if use := p.Use(); use.Failed != 1 || !use.LastFailed {
			t.Errorf("%+v", use)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestServersLimitsAreReported(t *testing.T) {
	t.Parallel()
	said := ratelimit.Report{Refused: true, Wait: time.Minute}
	var got []agentproxy.Tokens
	p := agentproxy.New(agentproxy.Options{Bodies: onlinewire.NewBodies(),
		Servers: &servers{answer: func(r engine.RawRequest) (engine.RawAnswer, error) {
			a, err := says(429, chat)(r)
			a.RateLimit = said
			return a, err
		}},
		Begin: func(context.Context, int, int64) (func(agentproxy.Tokens), error) {
			return func(t agentproxy.Tokens) { got = append(got, t) }, nil
		}})
	post(t, p, "/v1/chat/completions", `{}`)
	if len(got) != 1 || got[0].RateLimit != said || got[0].Answered {
		t.Errorf("%+v", got)
	}
}

// An answer that alone would pass a limit is cut to what is left.
func TestLastAnswerEndsAtTheLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path, body string
		limits     agentproxy.Limits
		want       string
	}{
		{"chat/completions", `{"max_tokens":5000}`, agentproxy.Limits{Tokens: 100}, `{"max_tokens":90,"model":"pool/model"}`},
		{"chat/completions", `{"max_completion_tokens":5000,"max_tokens":null}`, agentproxy.Limits{Tokens: 100},
			`{"max_completion_tokens":83,"max_tokens":null,"model":"pool/model"}`},
		{"completions", `{"n":2}`, agentproxy.Limits{Tokens: 100}, `{"max_tokens":46,"model":"pool/model","n":2}`},
		{"responses", `{}`, agentproxy.Limits{NanoUSD: 29_000},
			`{"max_output_tokens":10,"model":"pool/model","store":false}`},
		{"completions", `{}`, agentproxy.Limits{Tokens: 1}, `{"max_tokens":1,"model":"pool/model"}`},
		{"completions", `{"max_tokens":10}`, agentproxy.Limits{Tokens: 100}, `{"max_tokens":10,"model":"pool/model"}`},
		{"embeddings", `{}`, agentproxy.Limits{Tokens: 1}, `{"model":"pool/model"}`},
	} {
		s := &servers{answer: says(200, chat)}
		if w := post(t, newProxy(s, test.limits), "/v1/"+test.path, test.body); w.Code != 200 {
			t.Errorf("%s: %d %s", test.body, w.Code, w.Body)
			continue
		}
		if s.got[0] != test.want {
			t.Errorf("%s: passed on as %s, want %s", test.body, s.got[0], test.want)
		}
	}
}

func packed(encoding string) func(engine.RawRequest) (engine.RawAnswer, error) {
	return func(r engine.RawRequest) (engine.RawAnswer, error) {
		a, err := says(200, chat)(r)
		a.Header.Set("Content-Encoding", encoding)
		return a, err
	}
}

func TestAgentReachesTheModelOverASocket(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}, 8), make(chan struct{})
	s := &servers{answer: func(r engine.RawRequest) (engine.RawAnswer, error) {
		running <- struct{}{}
		<-release
		return says(200, chat)(r)
	}}
	p := newProxy(s, agentproxy.Limits{Concurrent: 2})
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.Addr().String())
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	models, err := client.Get("http://model/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(models.Body)
	models.Body.Close()
	if err != nil || !strings.Contains(string(text), `"pool/model"`) {
		t.Errorf("models: %s, %v", text, err)
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			resp, err := client.Post("http://model/v1/chat/completions", "application/json", strings.NewReader(`{}`))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != chat {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
	<-running
	<-running
	if n := len(running); n > 0 { // the limit is a channel: no third can be in it
		t.Errorf("%d more requests at once than the limit", n)
	}
	close(release)
	all.Wait()
	if use := p.Use(); use.Requests != 5 || use.PromptTokens != 35 {
		t.Errorf("%+v", use)
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// broken is a body that ends too early.
type broken struct{ io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = fault.New(fault.Unavailable, "the connection broke")
	}
	return n, err
}

func TestBrokenAnswerIsNotTakenForAWholeOne(t *testing.T) {
	t.Parallel()
	s := &servers{answer: func(engine.RawRequest) (engine.RawAnswer, error) {
		return engine.RawAnswer{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body: io.NopCloser(broken{strings.NewReader("data: {\"choices\":[]}\n\n")})}, nil
	}}
	p := newProxy(s, agentproxy.Limits{})
	server := httptest.NewServer(p)
	defer server.Close()
	resp, err := server.Client().Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{}`))
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the agent saw a complete answer")
	}
	if use := p.Use(); use.Failed != 1 || use.CompletionTokens != 1 {
		t.Errorf("%+v", use)
	}
}
