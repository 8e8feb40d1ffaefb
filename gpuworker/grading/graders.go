package grading

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/grade/rules"
	"rollout/shared/secret"
)

// Services are the scoring services and the graders among the plugins of a deployment. The nil value has none. It
// is safe for concurrent use.
type Services struct {
	byName   map[string]*service
	ofPlugin map[string]*service // by the plugin's name
	plugins  Plugins

	mu   sync.Mutex
	made []made // the last ones, the newest first
}

// made are graders that were made, of configs with that key.
type made struct {
	key     string
	graders *Graders
}

// maxMade is of how many runs Services keeps the graders: a large JSON schema takes
// long to compile, and a worker makes them for each shard.
const maxMade = 8

// Options are what services take besides their configs.
type Options struct {
	Secrets secret.Store // asked only for secrets that a config names
	Log     *slog.Logger
	// HTTPClient replaces the default client if it is not nil.
	HTTPClient *http.Client
	// Plugins are called for the graders that PluginConfigs names; nil without any.
	Plugins       Plugins
	PluginConfigs map[string]config.Plugin
}

// Connect returns the services of the configs. It reads their secrets and opens no
// connection.
func Connect(ctx context.Context, configs map[string]config.GraderService, o Options) (*Services, error) {
	s := &Services{byName: map[string]*service{}, ofPlugin: map[string]*service{}, plugins: o.Plugins}
	for name, cfg := range o.PluginConfigs {
		s.ofPlugin[name] = newPlugin(name, cfg, o)
	}
	for name, cfg := range configs {
		one := newService(name, cfg, o)
		if cfg.Secret != "" {
			key, err := o.Secrets.Get(ctx, cfg.Secret)
			if err != nil {
				return nil, fault.Wrap(err, "key of the scoring service %s", name)
			}
			one.key = key
		}
		s.byName[name] = one
	}
	return s, nil
}

// Graders returns the graders of a run; nil if it has none. A grader that can't be
// made is Corrupt, because submit has made it before. A grader whose service the
// deployment lacks gives the cause Unconfigured.
func (s *Services) Graders(grades []config.Grade) (*Graders, error) {
	if len(grades) == 0 {
		return nil, nil
	}
	if s == nil {
		return s.compile(grades)
	}
	key, err := json.Marshal(grades)
	if err != nil {
		return nil, fault.WithKind(fault.Corrupt, err, "configs of the graders of the run")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.made {
		if m.key == string(key) {
			return m.graders, nil
		}
	}
	g, err := s.compile(grades)
	if err == nil {
		s.made = append([]made{{string(key), g}}, s.made[:min(len(s.made), maxMade-1)]...)
	}
	return g, err
}

// compile makes the graders of the configs.
func (s *Services) compile(grades []config.Grade) (*Graders, error) {
	g := &Graders{configs: grades, pure: make([]grade.Grader, len(grades)), services: make([]*service, len(grades))}
	for i, c := range grades {
		switch c.Kind {
		case config.GradeJudge:
			continue
		case config.GradeHTTP:
			if s != nil {
				g.services[i] = s.byName[c.Service]
			}
			continue
		case config.GradePlugin:
			if s != nil {
				g.services[i] = s.ofPlugin[c.Plugin]
			}
			continue
		}
		var err error
		if g.pure[i], err = rules.New(c); err != nil {
			return nil, fault.WithKind(fault.Corrupt, err, "make the graders of the run")
		}
	}
	return g, nil
}

// Graders are the graders of a run. They are safe for concurrent use.
type Graders struct {
	configs  []config.Grade
	pure     []grade.Grader // by grader; nil for one with a service, and for a judge
	services []*service     // by grader; nil for one without, or with an unknown one
}

// AwaitRoom waits until no service of the run has a long queue. It returns false
// if stopping is closed or ctx ends first.
func (g *Graders) AwaitRoom(ctx context.Context, stopping <-chan struct{}) bool {
	for _, s := range g.services {
		if s != nil && !s.awaitRoom(ctx, stopping) {
			return false
		}
	}
	return true
}

// Grade scores the answers to one item, whose line was parsed before. The scores of
// judges stay open: a judge is asked when all answers of the run are there. It calls
// done once, with the row's members that hold the scores: before it returns, or
// later from another goroutine. When ctx ends, done is called soon.
func (g *Graders) Grade(ctx context.Context, line []byte, answers []grade.Case, done func(members []byte)) {
	t := &task{graders: g, done: done, scores: make([][]grade.Score, len(answers)), left: 1}
	for k, c := range answers {
		t.scores[k] = make([]grade.Score, len(g.configs))
		for i, cfg := range g.configs {
			c.Expected = nil
			if cfg.Expected != "" {
				c.Expected = grade.Lookup(line, cfg.Expected)
			}
			switch {
			case g.pure[i] != nil:
				t.scores[k][i] = g.pure[i].Grade(ctx, []grade.Case{c})[0]
			case (cfg.Kind == config.GradeHTTP || cfg.Kind == config.GradePlugin) && g.services[i] == nil:
				t.scores[k][i] = grade.Missing(grade.Unconfigured)
			case cfg.Expected != "" && c.Expected == nil:
				t.scores[k][i] = grade.Missing(grade.NoExpected)
			case cfg.Kind == config.GradeJudge:
				t.scores[k][i] = grade.Missing(grade.Open)
			default:
				t.add(1)
				g.services[i].submit(ctx, c, func(s grade.Score) { t.set(k, i, s) })
			}
		}
	}
	t.add(-1)
}

// task is one item that is being graded.
type task struct {
	graders *Graders
	done    func(members []byte)

	mu     sync.Mutex
	scores [][]grade.Score // by answer and grader
	left   int             // scores that have not come, and one for the call of Grade
}

func (t *task) set(answer, grader int, s grade.Score) {
	t.mu.Lock()
	t.scores[answer][grader] = s
	t.mu.Unlock()
	t.add(-1)
}

func (t *task) add(n int) {
	t.mu.Lock()
	t.left += n
	last := t.left == 0
	t.mu.Unlock()
	if last {
		t.done(grade.AppendMembers(nil, t.graders.configs, t.scores))
	}
}
