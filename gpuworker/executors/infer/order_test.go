package infer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/shared/config"
	"rollout/shared/input/inputtest"
)

// prefixCache models a server that keeps the key-value cache of what prompts
// began with, in blocks, and forgets the block that was used the longest ago.
type prefixCache struct {
	engine.Engine
	blocks int // that fit

	mu        sync.Mutex
	used      map[string]int // by all that the prompt says up to the block's end
	clock     int
	hits, all int
	bodies    []string
}

// blockSize is 16 tokens of 4 bytes.
const blockSize = 64

func (c *prefixCache) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	var body struct{ Prompt string }
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return engine.Answer{}, err
	}
	c.mu.Lock()
	c.bodies = append(c.bodies, string(r.Body))
	hit := true
	for end := blockSize; end <= len(body.Prompt); end += blockSize {
		_, known := c.used[body.Prompt[:end]]
		hit = hit && known
		if c.all++; hit {
			c.hits++
		}
		c.use(body.Prompt[:end])
	}
	c.mu.Unlock()
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return engine.Answer{}, ctx.Err()
	}
	return c.Engine.Answer(ctx, r, progress)
}

func (c *prefixCache) use(block string) {
	c.clock++
	c.used[block] = c.clock
	if len(c.used) <= c.blocks {
		return
	}
	oldest := block
	for b, at := range c.used {
		if at < c.used[oldest] {
			oldest = b
		}
	}
	delete(c.used, oldest)
}

// shared is a file of n lines, whose prompts begin in turn with one of so many
// documents and end in a question of their own.
func shared(n, documents int) string {
	var b strings.Builder
	for i := range n {
		document := strings.Repeat(fmt.Sprintf("Chapter %d of the book. ", i%documents), 40)
		fmt.Fprintf(&b, "{\"id\":\"i%d\",\"prompt\":\"%sQuestion %d?\"}\n", i, document, i)
	}
	return b.String()
}

// asked answers the file in an order, and returns the server and the rows.
func asked(t *testing.T, file, order string) (*prefixCache, []row) {
	c := &prefixCache{Engine: mock.New(mock.Config{}), blocks: 64, used: map[string]int{}}
	var rows []row
	synctest.Test(t, func(t *testing.T) {
		m := inputtest.Manifest(256)
		m.Config.Shard.Order = order
		d := newFixture(t, m, file, nil)
		d.work(time.Minute, func(cfg *infer.Config) { cfg.Engine = c })
		rows = d.rows()
	})
	return c, rows
}

// TestPromptsInPrefixOrderFindTheirPrefixCached has a server whose cache holds
// 4 of 16 documents: in input order each is forgotten before it comes again.
func TestPromptsInPrefixOrderFindTheirPrefixCached(t *testing.T) {
	t.Parallel()
	rate := map[string]int{}
	for _, order := range []string{config.OrderInput, config.OrderPrefix} {
		c, _ := asked(t, shared(256, 16), order)
		rate[order] = 100 * c.hits / c.all
	}
	t.Logf("%v %% of the blocks were cached", rate)
	if rate[config.OrderInput] > 5 || rate[config.OrderPrefix] < 85 {
		t.Errorf("%v %% of the blocks were cached", rate)
	}
}

// I4, I10: the order of asking changes neither requests nor rows.
func TestPrefixOrderChangesNothingElse(t *testing.T) {
	t.Parallel()
	file := strings.Repeat("\n", 2) + shared(40, 7) + "{}\n" + `{"id":"i3","prompt":"again"}` + "\n" + `{"messages":[{"role":"user"}]}` + "\n" + shared(1, 1)
	a, want := asked(t, file, "")
	b, got := asked(t, file, config.OrderPrefix)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the rows are\n%v, want\n%v", got, want)
	}
	if slices.Equal(a.bodies, b.bodies) {
		t.Error("the order of asking is that of the input")
	}
	slices.Sort(a.bodies)
	slices.Sort(b.bodies)
	if !slices.Equal(a.bodies, b.bodies) {
		t.Error("other requests were made")
	}
}
