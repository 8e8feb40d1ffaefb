package fakellm_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/openai"
	"rollout/localstack/fakellm"
	"rollout/shared/fault"
)

// start serves over HTTP until the test ends.
func start(t testing.TB, cfg fakellm.Config) (*fakellm.Server, string) {
	t.Helper()
	s, err := fakellm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return s, h.URL
}

func client(t testing.TB, url string, inFlight int) *openai.Client {
	t.Helper()
	c, err := openai.New(openai.Config{BaseURL: url, MaxInFlight: inFlight, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestOpenAIClientPassesTheEngineSuite(t *testing.T) {
	t.Parallel()
	over := func(cfg fakellm.Config) func(t *testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine {
			_, url := start(t, cfg)
			return client(t, url, 64)
		}
	}
	faulty := over(fakellm.Config{Faults: fakellm.Faults{ContextLimit: 8, Refuse: "<refuse>", NoChoices: "<none>",
		Empty: "<empty>", Echo: "<echo>", Error: "<error>", Drop: "<drop>", DropEarly: "<early>"}})
	fails := func(name, prompt string, kind fault.Kind, class fault.Class) enginetest.Fault {
		return enginetest.Fault{Name: name, Engine: faulty, Request: enginetest.ChatRequest(prompt), Kind: kind, Class: class}
	}
	for name, cfg := range map[string]fakellm.Config{
		"streaming":            {},
		"a piece at a time":    {TokenLatency: 1},
		"without /completions": {Faults: fakellm.Faults{ChatOnly: true}},
		"one at a time":        {MaxRunning: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enginetest.Run(t, enginetest.Subject{
				New:   over(cfg),
				Stuck: over(fakellm.Config{Faults: fakellm.Faults{Hang: "hello"}}),
				Model: "fake",
				Faults: []enginetest.Fault{
					fails("C19 too long", "one two three four five six seven eight nine", fault.Invalid, fault.TooLong),
					fails("refused", "say <refuse>", fault.Invalid, fault.Refused),
					fails("C15 no choices", "say <none>", fault.Corrupt, fault.Engine),
					fails("C15 an empty object", "say <empty>", fault.Corrupt, fault.Engine),
					fails("C15 an echo", "say <echo>", fault.Corrupt, fault.Engine),
					fails("a broken engine", "say <error>", fault.Corrupt, fault.Engine),
					fails("dropped before the headers", "say <early>", fault.Unavailable, ""),
					fails("dropped", "say <drop>", fault.Unavailable, ""),
					{Name: "overloaded", Engine: over(fakellm.Config{Faults: fakellm.Faults{OverloadEvery: 1}}),
						Request: enginetest.ChatRequest("hello"), Kind: fault.Throttled, RetryAfter: true},
					{Name: "connection refused", Engine: refused, Request: enginetest.ChatRequest("hello"), Kind: fault.Unavailable},
				},
			})
		})
	}
}

// refused is a client of an address without a server.
func refused(t *testing.T) engine.Engine {
	h := httptest.NewServer(nil)
	h.Close()
	return client(t, h.URL, 1)
}

// The server answers only once all requests have arrived.
func TestC26ServerReceivesAllRequestsInFlight(t *testing.T) {
	t.Parallel()
	const inFlight = 256
	var all sync.WaitGroup
	all.Add(inFlight)
	s, url := start(t, fakellm.Config{OnRunning: func() { all.Done(); all.Wait() }})
	c := client(t, url, inFlight)
	var asked sync.WaitGroup
	for n := range inFlight {
		asked.Go(func() {
			prompt := fmt.Sprintf("question <%d>", n)
			a, err := c.Answer(t.Context(), enginetest.ChatRequest(prompt), func() {})
			if err != nil || !strings.Contains(a.Text, prompt) {
				t.Errorf("%s: %q, %v", prompt, a.Text, err)
			}
		})
	}
	asked.Wait()
	if s.PeakRunning() != inFlight {
		t.Errorf("the server had %d of %d requests in flight", s.PeakRunning(), inFlight)
	}
	if got, want := scrape(t, url), fmt.Sprintf("fakellm_max_running{model_name=\"fake\"} %d\n",
		inFlight); !strings.Contains(got, want) {
		t.Errorf("the metrics have no %q:\n%s", want, got)
	}
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
