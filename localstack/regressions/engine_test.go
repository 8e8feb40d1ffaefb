package regressions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/engine/balancer"
	"rollout/localstack/fakellm"
	"rollout/shared/config"
)

// wantEchoes checks that the answers are the fake server's answers to the prompts
// with the numbers, in this order, each under its own id.
func (o outcome) wantEchoes(t *testing.T, numbers []int) {
	t.Helper()
	rows := parsed[answerRow](t, o.out)
	if len(rows) != len(numbers) {
		t.Errorf("%d answers, want %d", len(rows), len(numbers))
		return
	}
	for i, n := range numbers {
		id, prompt := fmt.Sprintf(`"id-%d"`, n), fmt.Sprintf("number %d", n)
		if r := rows[i]; string(r.ID) != id || r.Prompt != prompt || !strings.HasPrefix(r.Completion, "echo: "+prompt+" ") {
			t.Errorf("row %d has the id %s and answers %q with %q, want the id %s", i, r.ID, r.Prompt, r.Completion, id)
			return
		}
	}
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestC19TooLongPromptIsAnErrorOfItsItem(t *testing.T) {
	t.Parallel()
	for name, exact := range map[string]bool{"message of current vLLM": false, "message of older vLLM": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeServer(t, fakellm.Config{Faults: fakellm.Faults{ContextLimit: 40, ContextExact: exact}})
			p := onDisk(t)
			p.functions()
			p.work(setup{engine: overHTTP(t, s)})
			long := strings.Repeat("word ", 41)
			o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(strings.Join([]string{
				`{"custom_id":"fits","method":"POST","url":"/v1/completions","body":{"prompt":"two words","max_tokens":38}}`,
				`{"custom_id":"prompt","method":"POST","url":"/v1/completions","body":{"prompt":"` + long + `"}}`,
				`{"custom_id":"both","method":"POST","url":"/v1/completions","body":{"prompt":"two words","max_tokens":39}}`,
				`{"custom_id":"chat","method":"POST","url":"/v1/chat/completions","body":` +
					`{"messages":[{"role":"user","content":"` + long + `"}],"max_tokens":9}}`,
				`{"custom_id":"last","method":"POST","url":"/v1/completions","body":{"prompt":"two words"}}`,
			}, "\n"))))
			o.wantPhase(t, "completed_with_errors")
			o.wantCounts(t, 2, 3)
			if got := o.FailedByClass["too_long"]; got != 3 || s.Requests() != 5 {
				t.Errorf("the classes are %v after %d requests, want 3 too_long after 5", o.FailedByClass, s.Requests())
			}
			for _, row := range o.errs {
				if !bytes.Contains(row, []byte("maximum context length is 40 tokens")) {
					t.Errorf("the error does not contain the server's message: %s", row)
				}
			}
		})
	}
}

func TestC20ShardsOfADeadServerMoveToOthers(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		const items, workers = 96, 4
		p.configure("[shard]\nitems = 4")
		p.functions()
		dead := make(chan struct{})
		var asked [workers]atomic.Int64
		for n := range workers {
			s := fakeServer(t, fakellm.Config{Latency: time.Second, OnRunning: func() {
				if asked[n].Add(1) == 5 && n == 0 {
					close(dead) // with requests in flight
				}
			}})
			w := transport{to: s}
			if n == 0 {
				w.cut = dead
			}
			p.work(setup{engine: clientOver(t, w), inFlight: 4})
		}
		id := p.upload("prompts/x.jsonl", prompts(items))
		<-dead
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantCounts(t, items, 0)
		o.wantEchoes(t, upTo(items))
		if n := asked[0].Load(); n > 8 {
			t.Errorf("the dead server received %d requests, want at most 8", n)
		}
	})
}

func TestC21HangingServerIsDetectedAlthoughHealthy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream    balancer.Stream
		noMetrics bool
	}{
		"streams":                    {balancer.Always, false},
		"whole answers, by counters": {balancer.Auto, false},
		"whole answers, by the pace": {balancer.Auto, true},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); hangs(t, c.stream, c.noMetrics) })
	}
}

// hangs runs prompts over a server that hangs after some requests and stays healthy.
func hangs(t *testing.T, stream balancer.Stream, noMetrics bool) {
	simulated(t, func(t *testing.T, p *system) {
		const items, served = 40, 25
		p.deploy.Worker.ProgressTimeout = config.Duration(30 * time.Second)
		p.configure("[shard]\nitems = 8")
		faults := fakellm.Faults{FreezeAfter: served, NoMetrics: noMetrics}
		frozen := fakeServer(t, fakellm.Config{Latency: time.Second, Faults: faults})
		// slow, but it makes progress
		sound := fakeServer(t, fakellm.Config{Latency: time.Second, TokenLatency: 5 * time.Second, Tokens: 10,
			Faults: fakellm.Faults{NoMetrics: noMetrics}})
		var restarted, aborted atomic.Bool
		p.functions()
		p.work(setup{inFlight: 4, engine: streamingEngine(t, 4, stream,
			transport{to: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if restarted.Load() {
					sound.ServeHTTP(w, r)
				} else if frozen.ServeHTTP(w, r); r.Context().Err() != nil {
					aborted.Store(true)
				}
			})})})
		id := p.upload("prompts/x.jsonl", prompts(items))
		p.await("requests are aborted", aborted.Load)
		restarted.Store(true)
		o := p.awaitEnd(id)
		o.wantPhase(t, "completed")
		o.wantCounts(t, items, 0)
		o.wantEchoes(t, upTo(items))
	})
}

func TestC24UnseededAnswersDifferAndRepeatInARerun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config  string
		answers int // per prompt
	}{
		"8 workers at temperature 0.8 without a seed": {"[sampling]\ntemperature = 0.8\n[shard]\nitems = 3", 1},
		"4 answers with a seed": {
			"[sampling]\ntemperature = 0.8\nseed = 7\nn = 4\n[shard]\nitems = 3", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const items = 60
			same := []byte(strings.Repeat("{\"prompt\":\"say anything\"}\n", items)) // only the seed differs
			if c.answers > 1 {
				same = prompts(items)
			}
			var first []string
			for again := range 2 {
				simulated(t, func(t *testing.T, p *system) {
					s := &recordingServer{Handler: fakeServer(t, fakellm.Config{Latency: time.Second, Spread: 0.9})}
					p.configure(c.config)
					p.functions()
					for range 8 - 5*again { // the rerun has another number of workers
						p.work(setup{engine: clientOver(t, transport{to: s}), inFlight: 4})
					}
					o := p.awaitEnd(p.upload("prompts/x.jsonl", same))
					o.wantPhase(t, "completed")
					o.wantCounts(t, items, 0)
					texts := map[string]bool{}
					for _, row := range o.out {
						var r struct {
							Completion  string
							Completions []json.RawMessage
						}
						must(t, json.Unmarshal(row, &r))
						if c.answers == 1 {
							texts[r.Completion] = true
						}
						for _, a := range r.Completions {
							texts[string(a)] = true
						}
					}
					if len(texts) != c.answers*items {
						t.Errorf("%d different answers, want %d", len(texts), c.answers*items)
					}
					bodies := s.sorted()
					if again == 0 {
						first = bodies
					}
					if len(bodies) != c.answers*items || !slices.Equal(bodies, first) {
						t.Errorf("run %d sent %d requests; equal to the first run's: %v", again+1, len(bodies),
							slices.Equal(bodies, first))
					}
				})
			}
		})
	}
}

// recordingServer is a server that records the bodies of requests.
type recordingServer struct {
	http.Handler
	mu     sync.Mutex
	bodies []string
}

func (h *recordingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.mu.Lock()
		h.bodies = append(h.bodies, string(b))
		h.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	h.Handler.ServeHTTP(w, r)
}

func (h *recordingServer) sorted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.bodies))
}

func TestC25TenThousandRowsAreInInputOrder(t *testing.T) {
	t.Parallel()
	const items, workers = 10_000, 3
	p := onDisk(t)
	p.functions()
	e := overHTTP(t, fakeServer(t, fakellm.Config{Latency: 10 * time.Millisecond, Spread: 1}))
	for range workers {
		p.work(setup{engine: e, inFlight: 64})
	}
	o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(items)))
	o.wantPhase(t, "completed")
	o.wantCounts(t, items, 0)
	o.wantEchoes(t, upTo(items))
}

func TestC26WorkerKeepsItsNumberOfRequestsInFlight(t *testing.T) {
	t.Parallel()
	const inFlight = 256
	full, arrived := make(chan struct{}), atomic.Int64{}
	s := fakeServer(t, fakellm.Config{OnRunning: func() { // answers wait until all requests have arrived
		if arrived.Add(1) == inFlight {
			close(full)
		}
		<-full
	}})
	p := onDisk(t)
	p.configure("[shard]\nitems = 16") // the requests are of several shards
	p.functions()
	p.work(setup{engine: overHTTP(t, s), inFlight: inFlight})
	o := p.awaitEnd(p.upload("prompts/x.jsonl", prompts(2*inFlight)))
	o.wantPhase(t, "completed")
	o.wantCounts(t, 2*inFlight, 0)
	if got := s.PeakRunning(); got != inFlight {
		t.Errorf("the server had %d requests at once, want %d", got, inFlight)
	}
}

func TestC31PreemptedAnswerStartsAgain(t *testing.T) {
	t.Parallel()
	const guided = `,"response_format":{"type":"json_object"}`
	for name, c := range map[string]struct {
		config, body string
		valid        func(row []byte) bool
	}{
		"guided decoding": {"", guided, func(row []byte) bool {
			var r struct {
				Response struct {
					Body struct {
						Choices []struct{ Message struct{ Content string } }
					}
				}
			}
			return json.Unmarshal(row, &r) == nil && len(r.Response.Body.Choices) == 1 &&
				json.Valid([]byte(r.Response.Body.Choices[0].Message.Content))
		}},
		"4 answers": {"[sampling]\nn = 4", "", func(row []byte) bool {
			return bytes.Count(row, []byte(`"finish_reason":"stop"`)) == 4
		}},
	} {
		for way, preempt := range map[string]func(*runningWorker){
			"drained": func(h *runningWorker) { h.Drain("notice"); <-h.ended },
			"killed":  func(h *runningWorker) { h.kill() },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				simulated(t, func(t *testing.T, p *system) {
					const items = 6
					var file strings.Builder
					for n := range items {
						fmt.Fprintf(&file, `{"custom_id":"id-%d","method":"POST","url":"/v1/chat/completions","body":`+
							`{"messages":[{"role":"user","content":"number %d"}]%s}}`+"\n", n, n, c.body)
					}
					p.configure(c.config)
					p.deploy.Worker.DrainBudget = config.Duration(5 * time.Second)
					// An answer takes over a minute, longer than a drain.
					s := fakeServer(t, fakellm.Config{Latency: time.Second, TokenLatency: 20 * time.Second})
					p.functions()
					first := p.work(setup{engine: clientOver(t, transport{to: s}), inFlight: 5})
					id := p.upload("prompts/x.jsonl", []byte(file.String()))
					p.await("the requests have arrived", func() bool { return s.Requests() == 5 })
					time.Sleep(45 * time.Second)
					preempt(first)
					if way == "drained" {
						must(t, first.err)
					}
					p.work(setup{engine: clientOver(t, transport{to: s}), inFlight: 16})
					o := p.awaitEnd(id)
					o.wantPhase(t, "completed")
					o.wantCounts(t, items, 0)
					for i, row := range o.out {
						if !c.valid(row) || !bytes.Contains(row, fmt.Appendf(nil, `"custom_id":"id-%d"`, i)) {
							t.Errorf("row %d has no complete answer: %s", i, row)
						}
					}
				})
			})
		}
	}
}
