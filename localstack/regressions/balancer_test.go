package regressions

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/engine/openai"
	"rollout/localstack/fakellm"
	"rollout/shared/config"
)

// balancedEngine is a worker's engine of several inference servers.
func balancedEngine(t *testing.T, inFlight int, transports ...transport) engine.Engine {
	t.Helper()
	return streamingEngine(t, inFlight, balancer.Auto, transports...)
}

// streamingEngine is an engine that streams as the config may say. Its worker waits 30 s
// for progress.
func streamingEngine(t *testing.T, inFlight int, stream balancer.Stream, transports ...transport) engine.Engine {
	t.Helper()
	cfg := balancer.Config{InFlight: inFlight, Stream: stream, Silence: 30 * time.Second}
	for n, w := range transports {
		cfg.Servers = append(cfg.Servers, balancer.Backend{Name: fmt.Sprintf("server %d", n), Server: clientOver(t, w)})
	}
	f := balancer.New(cfg)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func TestC20FailingServerReceivesFewRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults fakellm.Faults
		dies   int // number of the request at which it dies; 0 is never
	}{
		"dies":                       {dies: 6},
		"500 from the sixth request": {faults: fakellm.Faults{ErrorAfter: 5}},
		"hangs and is healthy":       {faults: fakellm.Faults{FreezeAfter: 5}},
		"overloaded":                 {faults: fakellm.Faults{OverloadEvery: 1, RetryAfter: time.Hour}},
	} {
		for _, workers := range []int{1, 4} { // one for all four servers, or one for each
			t.Run(fmt.Sprintf("%s, %d workers", name, workers), func(t *testing.T) {
				t.Parallel()
				simulated(t, func(t *testing.T, p *system) {
					const items = 160
					p.deploy.Worker.ProgressTimeout = config.Duration(30 * time.Second)
					p.configure("[shard]\nitems = 8\n[limits]\nfailures = 2")
					p.functions()
					var transports []transport
					var failing *fakellm.Server
					dead, asked := make(chan struct{}), atomic.Int64{}
					for n := range 4 {
						cfg := fakellm.Config{Latency: time.Second}
						if n == 0 {
							cfg.Faults = c.faults
							cfg.OnRunning = func() {
								if asked.Add(1) == int64(c.dies) {
									close(dead)
								}
							}
						}
						s := fakeServer(t, cfg)
						w := transport{to: s}
						if n == 0 {
							failing, w.cut = s, dead
						}
						transports = append(transports, w)
					}
					if workers == 1 {
						p.work(setup{engine: balancedEngine(t, 16, transports...), inFlight: 16})
					} else {
						for _, w := range transports {
							p.work(setup{engine: balancedEngine(t, 4, w), inFlight: 4})
						}
					}
					o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(items)))
					o.wantPhase(t, "completed")
					o.wantCounts(t, items, 0)
					o.wantEchoes(t, upTo(items))
					if n := failing.Requests(); n > items/4 {
						t.Errorf("the failing server received %d requests, want at most a quarter", n)
					}
				})
			})
		}
	}
}

func TestC21RequestsOfAHangingServerMoveToAnother(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		const items = 60
		p.deploy.Worker.ProgressTimeout = config.Duration(30 * time.Second)
		p.configure("[limits]\nfailures = 1") // one charged failure would fail an item
		p.functions()
		frozen := fakeServer(t, fakellm.Config{Latency: time.Second, Faults: fakellm.Faults{FreezeAfter: 10}})
		sound := fakeServer(t, fakellm.Config{Latency: time.Second})
		p.work(setup{engine: balancedEngine(t, 8, transport{to: frozen}, transport{to: sound}), inFlight: 8})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(items)))
		o.wantPhase(t, "completed")
		o.wantCounts(t, items, 0)
	})
}

func TestC23WhiteSpaceInJSONModeIsRetriedAndCounted(t *testing.T) {
	t.Parallel()
	const limit = 60 // max_tokens
	for name, c := range map[string]struct {
		faults   fakellm.Faults
		answered bool
		requests int // for an affected prompt
	}{
		"twice":                                {fakellm.Faults{JSONSpaces: "odd", SpacesTimes: 2}, true, 3},
		"always":                               {fakellm.Faults{JSONSpaces: "odd"}, false, 3},
		"always, after the start of an object": {fakellm.Faults{JSONStuck: "odd"}, false, 3},
	} {
		for _, tokens := range []int{limit, 100_000} { // the client aborts the latter
			if c.faults.JSONStuck != "" && tokens == limit {
				continue // an ordinary truncated answer
			}
			t.Run(fmt.Sprintf("%s, %d tokens", name, tokens), func(t *testing.T) {
				t.Parallel()
				simulated(t, func(t *testing.T, p *system) {
					const odd, good = 3, 9
					var file strings.Builder
					for n := range odd + good {
						what := "good"
						if n%4 == 0 {
							what = "odd"
						}
						fmt.Fprintf(&file, `{"custom_id":"id-%d","method":"POST","url":"/v1/chat/completions","body":`+
							`{"messages":[{"role":"user","content":"%s %d"}],"max_tokens":%d,`+
							`"response_format":{"type":"json_object"}}}`+"\n", n, what, n, tokens)
					}
					s := fakeServer(t, fakellm.Config{Latency: time.Second, TokenLatency: 10 * time.Millisecond, Faults: c.faults})
					p.functions()
					p.work(setup{engine: balancedEngine(t, 8, transport{to: s}), inFlight: 8})
					o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(file.String())))
					failed := 0
					if !c.answered {
						failed = odd
					}
					o.wantCounts(t, good+odd-failed, failed)
					if got := o.FailedByClass["engine"]; got != failed {
						t.Errorf("the classes are %v", o.FailedByClass)
					}
					if n := s.Requests(); n != good+odd*int64(c.requests) {
						t.Errorf("%d requests, want %d", n, good+odd*c.requests)
					}
					for _, row := range o.out {
						var r struct {
							Response struct {
								Body struct {
									Choices []struct{ Message struct{ Content string } }
								}
							}
						}
						if json.Unmarshal(row, &r) != nil || !json.Valid([]byte(r.Response.Body.Choices[0].Message.Content)) {
							t.Errorf("not JSON: %s", row)
						}
					}
					blank := int64(odd * c.requests)
					if c.answered {
						blank -= odd
					}
					if least, most := blank*limit, blank*1200; o.WastedTokens < least || o.WastedTokens > most {
						t.Errorf("%d wasted tokens after %d white-space answers, want %d to %d", o.WastedTokens, blank, least, most)
					}
				})
			})
		}
	}
}

func TestC19MaxTokensAreClampedIfConfigured(t *testing.T) {
	t.Parallel()
	for name, exact := range map[string]bool{"message of current vLLM": false, "message of older vLLM": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				s := fakeServer(t, fakellm.Config{Tokens: 100, Faults: fakellm.Faults{ContextLimit: 40, ContextExact: exact}})
				p.functions()
				p.work(setup{engine: clientOver(t, transport{to: s}, func(c *openai.Config) { c.ClampMaxTokens = true })})
				o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(strings.Join([]string{
					`{"custom_id":"fits","method":"POST","url":"/v1/completions","body":{"prompt":"two words","max_tokens":38}}`,
					`{"custom_id":"both","method":"POST","url":"/v1/completions","body":{"prompt":"two words","max_tokens":5000}}`,
					`{"custom_id":"prompt","method":"POST","url":"/v1/completions","body":{"prompt":"` +
						strings.Repeat("word ", 41) + `","max_tokens":9}}`,
				}, "\n"))))
				o.wantPhase(t, "completed_with_errors")
				o.wantCounts(t, 2, 1)
				if o.FailedByClass["too_long"] != 1 {
					t.Errorf("the classes are %v, want one too_long", o.FailedByClass)
				}
				for i, clamped := range []bool{false, true} {
					row := string(o.out[i])
					if strings.Contains(row, `"max_tokens_clamped":38`) != clamped ||
						!strings.Contains(row, `"completion_tokens":38`) {
						t.Errorf("row %d, want clamped %v and 38 tokens: %s", i, clamped, row)
					}
				}
			})
		})
	}
}
