package process

import (
	"context"
	"slices"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/trial"
	"rollout/gpuworker/isolation"
	"rollout/gpuworker/online"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// Smoked is what one trial of a variant came to before its run.
type Smoked struct {
	Variant   string `json:"variant"`
	Trial     string `json:"trial_id"`
	Isolation string `json:"isolation,omitempty"` // of an agent
	Answer    string `json:"answer"`              // the beginning
	Tokens    int64  `json:"tokens"`
	Problem   string `json:"problem,omitempty"` // why the variant would lose or stop the run
}

// maxShown bounds the bytes of Smoked.Answer.
const maxShown = 200

// Smoke tries one trial of each line on this machine, with the engine of its variant's model: an
// agent in a sandbox, a prompt as one request. Lines are those of trials of the manifest's run. An
// error is about none of them alone.
func Smoke(ctx context.Context, o Options, m record.Manifest, lines [][]byte) ([]Smoked, error) {
	pools := map[string]inference{}
	var closers []func()
	defer func() {
		for _, closeLoad := range closers {
			closeLoad()
		}
	}()
	open := func(pool string) (inference, error) {
		if a, known := pools[pool]; known {
			return a, nil
		}
		o.Pool = pool
		a, closeLoad, err := o.openInference(ctx)
		if err != nil {
			return a, err
		}
		pools[pool] = a
		closers = append(closers, closeLoad)
		return a, nil
	}
	var out []Smoked
	for _, line := range lines {
		t, err := trials.ReadTrial(line)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(m.Config.Variants, func(v config.Variant) bool { return v.Name == t.Variant })
		if n < 0 {
			return nil, fault.New(fault.Corrupt, "the run has no variant %q", t.Variant)
		}
		v := m.Config.Variants[n]
		role, err := m.RoleOfModel(v.Model)
		if err != nil {
			return nil, err
		}
		of, err := m.InRole(role)
		if err != nil {
			return nil, err
		}
		a, err := open(of.Pool)
		if err != nil {
			return nil, err
		}
		s := Smoked{Variant: t.Variant, Trial: t.ID}
		if v.IsAgent() {
			err = a.smokeAgent(ctx, of, v, line, &s)
		} else {
			err = a.smokePrompt(ctx, of, line, &s)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			s.Problem = err.Error()
		}
		s.Answer = s.Answer[:min(len(s.Answer), maxShown)]
		out = append(out, s)
	}
	return out, nil
}

// openInference opens the workload of a pool, whose engine is ready.
func (o Options) openInference(ctx context.Context) (a inference, closeLoad func(), err error) {
	load, closeLoad, err := o.newWorkload(ctx)
	if err != nil {
		return a, nil, err
	}
	a, ok := load.(inference)
	if !ok {
		err = fault.New(fault.Invalid, "the pool %s answers no trials", o.Pool)
	} else if _, err = a.engine.Ready(ctx); err != nil {
		err = fault.Wrap(err, "ask the engine of the pool %s whether it is ready", o.Pool)
	}
	if err != nil {
		closeLoad()
		return a, nil, err
	}
	return a, closeLoad, nil
}

// smokeAgent runs a trial of an agent.
func (a inference) smokeAgent(ctx context.Context, m record.Manifest, v config.Variant, line []byte, s *Smoked) error {
	if a.agents.sandbox == nil {
		return fault.New(fault.Denied, "this machine runs no agents: %v", a.agents.broken)
	}
	level, reason := a.agents.sandbox.Probe(ctx)
	if level == isolation.Refused {
		return fault.New(fault.Denied, "this machine cannot isolate agents: %s", reason)
	}
	s.Isolation = level.String()
	agent, err := a.agents.artifacts.AgentOf(ctx, m, v)
	if err != nil {
		return err
	}
	task, err := trial.TaskOf(m, v, line)
	if err != nil {
		return err
	}
	e := a.o.Deployment.Engine
	r, err := trial.Runner{Sandbox: a.agents.sandbox, Servers: online.PasserOf(a.online()), Bodies: a.agents.bodies,
		Prices: cost.TokenPrices{Prompt: e.PromptPrice, Completion: e.CompletionPrice}}.Run(ctx, agent, task)
	if err != nil {
		return err
	}
	s.Answer, s.Tokens = r.Answer, r.Model.PromptTokens+r.Model.CompletionTokens
	switch r.End {
	case trial.Answered:
		return nil
	case trial.Limited:
		return fault.New(fault.Invalid, "it reached its limit %s", r.Limit)
	}
	return fault.New(fault.Invalid, "%s", r.Reason)
}

// smokePrompt sends the request of a trial.
func (a inference) smokePrompt(ctx context.Context, m record.Manifest, line []byte, s *Smoked) error {
	it, err := dialect.Parse(dialect.Plain, line)
	if err != nil {
		return err
	}
	model, sampling := m.DialectModel(), m.Config.Sampling
	settings := dialect.NewSettings(m.Config.Request, a.o.Deployment.Engine.Request)
	var buffers dialect.Buffers
	made := settings.AppendRequest(&buffers, it, model, sampling, m.PromptMaxTokens, it.ItemID(model, 0), 0)
	answer, err := a.engine.Answer(ctx, engine.Request{Endpoint: engine.Endpoint(made.Endpoint), Path: made.Path,
		Body: made.Body, Model: m.ModelURI, MaxTokens: settings.MaxTokens(it.MaxTokens(sampling)),
		FitMaxTokens: made.FitMaxTokens}, func() {})
	s.Answer, s.Tokens = answer.Text, answer.Usage.PromptTokens+answer.Usage.CompletionTokens
	return err
}

// SmokeLines returns the first line of each variant of a run among lines of its trials.
func SmokeLines(m record.Manifest, lines *jsonl.Scanner) (out [][]byte, err error) {
	seen := map[string]bool{}
	for len(seen) < len(m.Config.Variants) {
		l, err := lines.Next()
		if err != nil {
			return nil, fault.WithKind(fault.Invalid, err, "find a trial of each variant")
		}
		t, err := trials.ReadTrial(l.Bytes)
		if err != nil {
			return nil, err
		}
		if !seen[t.Variant] {
			seen[t.Variant] = true
			out = append(out, slices.Clone(l.Bytes))
		}
	}
	return out, nil
}
