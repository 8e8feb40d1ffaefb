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

// prefixCache models a server with a prefix cache: it caches the key-value blocks
// of prompts and evicts the least recently used block.
type prefixCache struct {
	engine.Engine
	blocks int // capacity

	mu        sync.Mutex
	used      map[string]int // last use, by the prompt up to the block's end
	clock     int
	hits, all int // blocks
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

// prefixedPrompts returns a file of n lines. Each prompt begins with one of so many
// documents, in turn, and ends with a question of its own.
func prefixedPrompts(n, documents int) string {
	var b strings.Builder
	for i := range n {
		document := strings.Repeat(fmt.Sprintf("Chapter %d of the book. ", i%documents), 40)
		fmt.Fprintf(&b, "{\"id\":\"i%d\",\"prompt\":\"%sQuestion %d?\"}\n", i, document, i)
	}
	return b.String()
}

// answerFile answers the file in the given order, and returns the server and the
// rows.
func answerFile(t *testing.T, file, order string) (*prefixCache, []row) {
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

// The server's cache holds 4 of 16 documents. In input order each document is
// evicted before it comes again.
func TestPrefixOrderHitsPrefixCache(t *testing.T) {
	t.Parallel()
	rate := map[string]int{}
	for _, order := range []string{config.OrderInput, config.OrderPrefix} {
		c, _ := answerFile(t, prefixedPrompts(256, 16), order)
		rate[order] = 100 * c.hits / c.all
	}
	t.Logf("%v %% of the blocks were cached", rate)
	if rate[config.OrderInput] > 5 || rate[config.OrderPrefix] < 85 {
		t.Errorf("%v %% of the blocks were cached", rate)
	}
}

// The order of requests changes neither their bodies nor the rows (I4, I10).
func TestPrefixOrderChangesOnlyRequestOrder(t *testing.T) {
	t.Parallel()
	faulty := "{}\n" + `{"id":"i3","prompt":"again"}` + "\n" + `{"messages":[{"role":"user"}]}` + "\n"
	file := "\n\n" + prefixedPrompts(40, 7) + faulty + prefixedPrompts(1, 1)
	a, want := answerFile(t, file, "")
	b, got := answerFile(t, file, config.OrderPrefix)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the rows are\n%v, want\n%v", got, want)
	}
	if slices.Equal(a.bodies, b.bodies) {
		t.Error("the requests are in input order, want prefix order")
	}
	slices.Sort(a.bodies)
	slices.Sort(b.bodies)
	if !slices.Equal(a.bodies, b.bodies) {
		t.Error("the request bodies differ from those in input order")
	}
}
