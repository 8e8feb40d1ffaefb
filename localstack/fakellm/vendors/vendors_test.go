package vendors_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
	"rollout/localstack/fakellm/vendors"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// server is a running server of a vendor, and what it was asked.
type server struct {
	vendors.Vendor
	url string

	mu    sync.Mutex
	asked []string
}

func start(t *testing.T, v vendors.Vendor, o vendors.Options) *server {
	t.Helper()
	s := &server{Vendor: v}
	o.OnAsked = func(method, path string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, method+" "+strings.TrimPrefix(path, v.Base))
	}
	h := httptest.NewServer(v.Handler(o))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s.url = h.URL + v.Base
	return s
}

// client returns the worker's client with that key, set up as the vendor's documentation says.
func (s *server) client(t *testing.T, key string) *openai.Client {
	t.Helper()
	cfg := openai.Config{BaseURL: s.url, Query: url.Values{}}
	if s.KeyHeader == "" {
		cfg.Key = secret.NewValue(key)
	} else {
		cfg.Header = map[string]secret.Value{s.KeyHeader: secret.NewValue(key)}
	}
	for name, value := range s.Query {
		cfg.Query.Set(name, value)
	}
	c, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a chat of one word.
func ask(t *testing.T, c *openai.Client, model, word string) (engine.Answer, error) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, word)
	return c.Answer(t.Context(), engine.Request{Endpoint: engine.Chat, Body: []byte(body)}, func() {})
}

func each(t *testing.T, test func(t *testing.T, v vendors.Vendor)) {
	t.Helper()
	all := vendors.All()
	if len(all) < 8 {
		t.Fatalf("there are %d vendors", len(all))
	}
	for _, v := range all {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

func TestEveryVendorIsReadyAndNamesItsModels(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendors.Vendor) {
		s := start(t, v, vendors.Options{})
		c := s.client(t, vendors.Key)
		model, err := c.Ready(t.Context())
		want, listed := vendors.Model, []string{vendors.Model, "other"}
		switch v.Name {
		case "Azure": // has no list below a deployment
			want, listed = "", nil
		case "llama.cpp": // answers to any name
			listed = nil
		case "TGI": // serves one
			listed = []string{vendors.Model}
		}
		if err != nil || model != want || !slices.Equal(c.Models(), listed) {
			t.Errorf("ready: %q, %v, with the models %v; want %q and %v", model, err, c.Models(), want, listed)
		}
		costly := v.Name == "LiteLLM" || v.Name == "OpenAI"
		if asked := strings.Join(s.asked, ", "); asked != "GET /models, GET /health" && !costly ||
			asked != "GET /models" && costly {
			t.Errorf("it was asked for %s", asked)
		}
		a, err := ask(t, c, vendors.Model, "hello")
		if err != nil || a.Text != "ok" || a.Model != vendors.Model || a.FinishReason != "stop" ||
			a.Usage.PromptTokens != 3 || a.Usage.CompletionTokens != 1 {
			t.Errorf("the answer is %+v, %v", a, err)
		}
	})
}

func TestLoadingServersAreReadyOnlyIfTheyAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendors.Vendor) {
		if v.Loading == (vendors.Loading{}) {
			return // its port opens when the model is loaded, or it is never loading
		}
		s := start(t, v, vendors.Options{Loading: true})
		model, err := s.client(t, vendors.Key).Ready(t.Context())
		answers := v.Loading.Chats.Status == 0
		if answers != (err == nil) || err != nil && !fault.Is(err, fault.Unavailable) {
			t.Errorf("ready: %q, %v; it answers: %v", model, err, answers)
		}
	})
}

// A prompt that the vendor's model can't complete is sent as a chat.
func TestPromptsOfModelsForChatsAreSentAsChats(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendors.Vendor) {
		s := start(t, v, vendors.Options{})
		c := s.client(t, vendors.Key)
		for range 5 {
			a, err := c.Answer(t.Context(), engine.Request{Endpoint: engine.Completion,
				Body: []byte(`{"model":"served","prompt":"hello"}`)}, func() {})
			if err != nil || a.Text != "ok" {
				t.Fatalf("the answer is %+v, %v", a, err)
			}
		}
		if asked := strings.Count(strings.Join(s.asked, " ")+" ", "POST /completions "); asked != 3 {
			t.Errorf("%d completions were asked for, want 3", asked)
		}
	})
}

func TestWrongKeysAreDenied(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendors.Vendor) {
		c := start(t, v, vendors.Options{}).client(t, "sk-wrong-0123456789")
		_, err := ask(t, c, vendors.Model, "hello")
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "status 401") ||
			!strings.Contains(fault.RemedyOf(err), "key") {
			t.Errorf("the answer is %v (%v)", err, fault.KindOf(err))
		}
		_, err = start(t, v, vendors.Options{}).client(t, "sk-wrong-0123456789").Ready(t.Context())
		if open := slices.Contains(v.Public, "/models"); open != (err == nil) || err != nil && !fault.Is(err, fault.Denied) {
			t.Errorf("ready: %v (%v)", err, fault.KindOf(err))
		}
	})
}

// Each error is of its class, and has the server's own words.
func TestErrorsHaveTheirClassAndTheServersWords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendors.Vendor) {
		c := start(t, v, vendors.Options{}).client(t, vendors.Key)
		for _, e := range []struct {
			name, model, word string
			reply             vendors.Reply
			kind              fault.Kind
			class             fault.Class
		}{
			{"too long", vendors.Model, vendors.TooLong, v.TooLong, fault.Invalid, fault.TooLong},
			{"limited", vendors.Model, vendors.Limited, v.Limited, fault.Throttled, ""},
			{"full", vendors.Model, vendors.Full, v.Full, fault.Throttled, ""},
			{"filtered", vendors.Model, vendors.Filtered, v.Filtered, fault.Invalid, fault.Refused},
		} {
			_, err := ask(t, c, e.model, e.word)
			if e.reply.Status == 0 {
				if err != nil {
					t.Errorf("%s: %v, want an answer", e.name, err)
				}
				continue
			}
			if !fault.Is(err, e.kind) || fault.ClassOf(err) != e.class || !strings.Contains(err.Error(), words(e.reply)) {
				t.Errorf("%s: %v (%v, class %q); want %v, class %q", e.name, err, fault.KindOf(err), fault.ClassOf(err),
					e.kind, e.class)
			}
			if after := fault.RetryAfter(err); (after > 0) != (e.reply.RetryAfter != "") {
				t.Errorf("%s: retry after %v, the server says %q", e.name, after, e.reply.RetryAfter)
			}
		}
	})
}

func TestUnknownModelsAreNamedInTheServersWords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, v vendors.Vendor) {
		c := start(t, v, vendors.Options{}).client(t, vendors.Key)
		_, err := ask(t, c, vendors.Missing, "hello")
		if v.Missing.Status == 0 {
			if err != nil {
				t.Errorf("got %v, want an answer to any name", err)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), words(v.Missing)) {
			t.Errorf("got %v (%v), want the words %q", err, fault.KindOf(err), words(v.Missing))
		}
		if !fault.Is(err, fault.Denied) || !strings.Contains(fault.RemedyOf(err), "model.uri") {
			t.Errorf("got %v (%s), want denied: it concerns every request", fault.KindOf(err), fault.RemedyOf(err))
		}
	})
}

// words returns words of a reply that must be shown.
func words(r vendors.Reply) string {
	for _, w := range []string{
		"does not exist", "'missing' not found", "Invalid model name", "maximum context length",
		"context length is only", "longer than the model's", "exceeds the available context", "must be <=",
		"Rate limit reached", "exceeded token rate",
		"Max parallel request", "Model is overloaded", "overloaded", "queue is full", "server busy", "temporarily unable",
		"usage policy", "content management policy", "was filtered",
	} {
		if strings.Contains(r.Body, w) {
			return w
		}
	}
	return "no words are known of " + r.Body
}

// Azure answers nothing without its version, and says only that there is no such resource.
func TestAzureNeedsItsVersion(t *testing.T) {
	t.Parallel()
	for _, v := range vendors.All() {
		if v.Name != "Azure" {
			continue
		}
		s := start(t, v, vendors.Options{})
		s.Query = nil
		c := s.client(t, vendors.Key)
		if _, err := c.Ready(t.Context()); err != nil {
			t.Errorf("ready: %v", err) // the hints say nothing
		}
		if _, err := ask(t, c, vendors.Model, "hello"); !fault.Is(err, fault.Invalid) {
			t.Errorf("the answer is %v (%v)", err, fault.KindOf(err))
		}
	}
}
