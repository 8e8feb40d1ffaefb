package infer_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/infer"
	"rollout/shared/config"
	"rollout/shared/core/ratelimit"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
)

// The requests of a run have what its config and the engine's say, and rows that the
// endpoint can't take fail alone.
func TestRequestsHaveTheSettingsOfRunAndEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := inputtest.Manifest(0)
		m.Config.Request = &config.Request{Endpoint: "chat", System: "be brief", Extra: map[string]any{"x": int64(1)}}
		d := newFixture(t, m, `{"prompt":"a","temperature":0}`+"\n"+`{"query":"q","documents":["b"]}`+"\n", nil)
		d.work(time.Minute, func(c *infer.Config) { c.Request = config.Request{Omit: []string{"seed"}} })
		want := `"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"a"}],"temperature":0,"x":1}`
		if len(d.engine.requests) != 1 || !strings.HasSuffix(d.engine.requests[0].body, want) {
			t.Errorf("requests %+v, want one that ends in %s", d.engine.requests, want)
		}
		if c := d.shard().Counts; c.OK != 1 || c.ByClass["refused"] != 1 {
			t.Errorf("counts %+v", c)
		}
	})
}

// A raw prompt has the run's default of max_tokens, unless the row or the config sets another.
func TestRawPromptsHaveTheRunsMaxTokens(t *testing.T) {
	t.Parallel()
	eight := 8
	for name, c := range map[string]struct {
		line     string
		edit     func(*config.Run)
		want     string
		fits     bool
		manifest int
	}{
		"default":    {`{"prompt":"a"}`, nil, `"max_tokens":1024`, true, 1024},
		"of the row": {`{"prompt":"a","max_tokens":7}`, nil, `"max_tokens":7`, false, 1024},
		"of the run": {`{"prompt":"a"}`, func(r *config.Run) { r.Sampling.MaxTokens = &eight }, `"max_tokens":8`,
			false, 1024},
		"of a setting": {`{"prompt":"a"}`, func(r *config.Run) { r.Request = maxTokens(9) }, `"max_tokens":9`, false, 1024},
		"a chat":       {`{"messages":[{"role":"user","content":"a"}]}`, nil, "", false, 1024},
		"older run":    {`{"prompt":"a"}`, nil, "", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				m.PromptMaxTokens = c.manifest
				if c.edit != nil {
					c.edit(&m.Config)
				}
				d := newFixture(t, m, c.line+"\n", nil)
				fits := false
				d.work(time.Minute, func(cfg *infer.Config) { cfg.Engine = fitting{cfg.Engine, &fits} })
				body := d.engine.requests[0].body
				if !strings.Contains(body, c.want) || strings.Count(body, "max_tokens") > 1 ||
					c.want == "" && strings.Contains(body, "max_tokens") || fits != c.fits {
					t.Errorf("asked %s, fits is %v", body, fits)
				}
				row := hosttest.Object(t, d.Ports, d.shard().Result.Key)
				if strings.Contains(row, "max_tokens_clamped") == c.fits {
					t.Errorf("the row is %s", row)
				}
			})
		})
	}
}

// Under a limit of tokens, a request counts with the max_tokens that is sent until it is
// answered: that of the row, or the run's default.
func TestRequestsCountWithTheirMaxTokensUnderALimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more string // of the lines
		want int    // requests at once of 1,600 tokens a minute
	}{
		"of the row": {`,"max_tokens":400`, 3},
		"default":    {"", 1}, // 1,024
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := inputtest.Manifest(0)
				m.PromptMaxTokens = 1024
				file := strings.Repeat(`{"prompt":"a"`+c.more+"}\n", 6)
				d := newFixture(t, m, file, map[string][]step{"a": times(6, hangs(60, 20*time.Second))})
				d.limit = ratelimit.Amount{Tokens: 1600}
				d.work(58 * time.Second)
				if n := len(d.engine.requests); n != c.want {
					t.Errorf("%d requests in a minute, want %d", n, c.want)
				}
			})
		})
	}
}

func maxTokens(n int64) *config.Request {
	return &config.Request{Extra: map[string]any{"max_tokens": n}}
}

// fitting is an engine that lowers every max_tokens.
type fitting struct {
	engine.Engine
	fits *bool
}

func (e fitting) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	*e.fits = r.FitMaxTokens
	a, err := e.Engine.Answer(ctx, r, progress)
	a.MaxTokens = 5
	return a, err
}
