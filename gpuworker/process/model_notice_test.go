package process

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/shared/config"
	"rollout/shared/core/health"
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
		if got := notice.of(""); !strings.Contains(got, c.want) || c.want == "" && got != "" ||
			(out.Len() > 0) != (c.want != "") {
			t.Errorf("%s: %q, want %q; the log: %s", name, got, c.want, &out)
		}
		if _, err := o.Answer(t.Context(), engine.Request{}, func() {}); err != nil || notice.of("") != "" {
			t.Errorf("%s: after an answer (%v) it says %q", name, err, notice.of(""))
		}
	}
}

// A server that answers as another model than it was asked for is told once a model, and
// as long as it does.
func TestNoticeOfServerThatAnswersAsAnotherModel(t *testing.T) {
	t.Parallel()
	const first, last = `{"model":"m","prompt":"x"}`, `{"prompt":"x", "model":"m"}`
	for name, c := range map[string]struct {
		body, answers string
		other         bool
	}{
		"the same":              {first, "m", false},
		"the same, at the end":  {last, "m", false},
		"another":               {first, "n", true},
		"another, at the end":   {last, "n", true},
		"without a name":        {first, "", false},
		"none asked for":        {`{"prompt":"x"}`, "n", false},
		"a snapshot of it":      {first, "M-2026-01-02", false},
		"a tag of it":           {first, "m:latest", false},
		"one that begins alike": {first, "mm", true},
		"in a folder":           {`{"model":"org/M.gguf"}`, "/models/m.gguf", false},
		"listed as an alias":    {first, "alias", false},
	} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		n := newModelNotice(aliased{}, config.Deployment{}, "p", log)
		for range 3 {
			n.answered(t.Context(), engine.Request{Body: []byte(c.body)}, engine.Answer{Model: c.answers, Server: "s"})
		}
		if got := n.of("s"); (got != "") != c.other || n.of("other server") != "" {
			t.Errorf("%s: it says %q", name, got)
		}
		if logged := strings.Count(out.String(), "answers as model"); (logged == 1) != c.other || logged > 1 {
			t.Errorf("%s: the log: %s", name, &out)
		}
		n.answered(t.Context(), engine.Request{Body: []byte(first)}, engine.Answer{Model: "m", Server: "s"})
		if got := n.of("s"); got != "" {
			t.Errorf("%s: after an answer as asked it says %q", name, got)
		}
	}
}

// aliased is an engine whose servers list alias for m.
type aliased struct{ engine.Engine }

func (aliased) IsAlias(_, a, b string) bool { return a == "m" && b == "alias" }

// A server that the executor has set aside says so in the heartbeat, with its words.
func TestHeartbeatShowsServersThatAreSetAside(t *testing.T) {
	t.Parallel()
	e := limitedEngine{limits: statuses{{Name: "a", State: balancer.Closed}, {Name: "b", State: balancer.Closed},
		{Name: "c", State: balancer.Open, Why: "down"}}, model: newModelNotice(nil, config.Deployment{}, "p", nil),
		aside: func() map[string]string { return map[string]string{"b": "status 403: no", "c": "status 500"} }}
	want := []health.Server{{Name: "a", State: "closed"}, {Name: "b", State: "set_aside", LastError: "status 403: no"},
		{Name: "c", State: "open", LastError: "down"}}
	if diff := cmp.Diff(want, e.servers()); diff != "" {
		t.Error(diff)
	}
}

type statuses []balancer.ServerStatus

func (s statuses) Limit() int                              { return 0 }
func (s statuses) LimitChanges() <-chan struct{}           { return nil }
func (s statuses) ServerStatuses() []balancer.ServerStatus { return s }
