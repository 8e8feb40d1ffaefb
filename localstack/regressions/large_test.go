package regressions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/queue"
)

// wantSmallDocuments checks that no document exceeds the limit of its kind.
func (p *system) wantSmallDocuments() {
	p.t.Helper()
	for prefix, most := range map[string]int{"shard/": 4 << 10, "coordinator/": 16 << 10, "run/": 16 << 10,
		"control/": 4 << 10, "plan/": 16 << 10, "beat/": 16 << 10} {
		for _, d := range p.documents(prefix) {
			if len(d.Value) > most {
				p.t.Errorf("document %s has %d bytes, want at most %d", d.Key, len(d.Value), most)
			}
		}
	}
}

func TestC41LargeAnswersAreStoredInObjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, n int }{
		"an answer of 400,001 bytes": {400_001, 1},
		"64 answers":                 {20_000, 64},
		"8 large answers":            {400_001, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure(fmt.Sprintf("[sampling]\nn = %d", c.n))
				text := strings.Repeat("y", c.size)
				e := newRecordingEngine(func(ctx context.Context, r engine.Request) (engine.Answer, error) {
					// No answer comes at the instant of a checkpoint.
					a, err := after(2500*time.Millisecond)(ctx, r)
					a.Text = text
					return a, err
				})
				biggest := 0
				ports := p.intercept(interceptors{send: func(_ string, body []byte, apply func() error) error {
					biggest = max(biggest, len(body))
					return apply()
				}})
				p.functions()
				id := p.upload("prompts/x.jsonl", prompts(3))
				p.await("it is dispatched", func() bool { return p.state(id).NextShard == 1 })
				// Its checkpoint is an object as well.
				first := p.work(setup{engine: e, inFlight: c.n, ports: ports, checkpoint: time.Second})
				p.await("one is answered", func() bool { d := p.shards(id); return len(d) == 1 && d[0].Checkpoint != nil })
				p.wantSmallDocuments()
				first.Drain("a notice")
				<-first.ended
				p.wantSmallDocuments()
				p.work(setup{engine: e, inFlight: 3 * c.n, ports: ports})
				o := p.awaitEnd(id)
				o.wantPhase(t, "completed")
				o.wantCounts(t, 3, 0)
				p.wantSmallDocuments()
				if biggest > queue.MaxBody/16 {
					t.Errorf("a message has %d bytes, want at most %d", biggest, queue.MaxBody/16)
				}
				for _, row := range o.out {
					var r struct {
						Completion  string
						Completions []struct{ Completion string }
					}
					must(t, json.Unmarshal(row, &r))
					if r.Completion != text || c.n > 1 && len(r.Completions) != c.n {
						t.Errorf("the answer has %d bytes and %d completions", len(r.Completion), len(r.Completions))
					}
				}
				if got := len(e.requests()); got != 3*c.n {
					t.Logf("%d requests for 3 items of %d answers", got, c.n)
				}
			})
		})
	}
}

func TestC41LongIDsAreStoredInObjects(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.configure("[shard]\nitems = 2")
		long := strings.Repeat("k", 300<<10)
		var file bytes.Buffer
		line := func(id string, body string) {
			fmt.Fprintf(&file, "{\"custom_id\":%q,\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":%s}\n", id, body)
		}
		line(long+"1", `{"prompt":"a"}`)
		line(long+"2", `{"prompt":"b"}`)
		line(long+"3", `{"prompt":5}`)   // an error row with a long id
		line(long+"1", `{"prompt":"c"}`) // a duplicate of a long id
		p.functions()
		p.work(setup{})
		o := p.awaitEnd(p.upload("prompts/x.jsonl", file.Bytes()))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 2, 2)
		p.wantSmallDocuments()
		for i, row := range append(o.out, o.errs...) {
			var r struct {
				ID string `json:"custom_id"`
			}
			must(t, json.Unmarshal(row, &r))
			if want := long + []string{"1", "2", "3", "1"}[i]; r.ID != want {
				t.Errorf("row %d has an id of %d bytes that ends in %q, want its own id", i, len(r.ID), r.ID[max(0, len(r.ID)-2):])
			}
		}
	})
}
