package process

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/shared/config"
	"rollout/shared/host"
)

// listing is an engine that is ready, answers, and lists models.
type listing struct {
	scriptedEngine
	models []string
}

func (l *listing) Models() []string { return l.models }

func TestNoticeNamesTheListedModelsUntilTheFirstAnswer(t *testing.T) {
	t.Parallel()
	mapped := config.Engine{}
	mapped.BodyModel = map[string]string{"m": "served"}
	for name, c := range map[string]struct {
		engine config.Engine
		lists  []string
		want   string
	}{
		"listed":           {config.Engine{}, []string{"x", "m"}, ""},
		"no list":          {config.Engine{}, nil, ""},
		"not listed":       {config.Engine{}, []string{"x", "y"}, `the server lists no model "m"; it lists x, y`},
		"mapped":           {mapped, []string{"served"}, ""},
		"mapped elsewhere": {mapped, []string{"m"}, `the server lists no model "served"; it lists m`},
		"many listed":      {config.Engine{}, strings.Split("abcdefghijkl", ""), "h, i, j and 2 more"},
	} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		e := &listing{scriptedEngine{errs: []error{nil, nil}}, c.lists}
		d := config.Deployment{Engine: c.engine, Pools: []config.Pool{{Name: "p", Model: "m"}}}
		notice := newModelNotice(e, d, "p", log)
		o := observeEngine(e, "http://h", host.Ports{Log: log}, notice)
		if _, err := o.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := notice.String(); !strings.Contains(got, c.want) || c.want == "" && got != "" ||
			(out.Len() > 0) != (c.want != "") {
			t.Errorf("%s: %q, want %q; the log: %s", name, got, c.want, &out)
		}
		if _, err := o.Answer(t.Context(), engine.Request{}, func() {}); err != nil || notice.String() != "" {
			t.Errorf("%s: after an answer (%v) it says %q", name, err, notice)
		}
	}
}
