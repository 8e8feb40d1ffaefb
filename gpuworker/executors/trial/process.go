package trial

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"

	"rollout/gpuworker/agentproxy"
	"rollout/gpuworker/engine"
	"rollout/gpuworker/isolation"
	"rollout/shared/core/cost"
	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// Runner runs trials of one pool's model. It is safe for concurrent use.
type Runner struct {
	Sandbox *isolation.Sandbox
	Servers engine.Passer // of the model
	Model   string
	Prices  cost.TokenPrices
	Bodies  *onlinewire.Bodies // shared by all trials of the process
}

// Agent is the program of a variant.
type Agent struct {
	Args     []string          // the program and its arguments; no shell sees them
	Env      map[string]string // further variables
	Artifact string            // a folder whose files it finds where it starts; "" is none
	Limits   isolation.Limits
	Model    agentproxy.Limits
	Trusted  bool // it may run where machines isolate trusted programs only
}

// Task is what an agent gets to solve.
type Task struct {
	Trial string // the trial's id, in ROLLOUT_TRIAL_ID
	JSON  []byte // task.json: the task without what it expects
	Files string // a folder with further files; "" is none
}

// End says whose end a trial had.
type End string

// The ends.
const (
	Answered       End = "answered"
	Limited        End = "limited"        // Result.Limit
	ResultError    End = "result_error"   // Result.Reason
	GradeError     End = "grade_error"    // Result.Reason
	Infrastructure End = "infrastructure" // Result.Reason
)

// Result is what became of a trial.
type Result struct {
	End    End
	Limit  string // which limit. Examples: "time_limit", "tokens"
	Reason string

	Answer string             // the member answer of the result; what graders read
	JSON   []byte             // the result, compact
	Scores map[string]float64 // of grade.json: by grader; "" is the only one of {"score": …}

	// What was measured differs between two runs of the same agent.
	Process isolation.Outcome
	Model   agentproxy.Use
}

// Run runs the agent on the task. It returns an error only if ctx ends, which is Canceled: the
// trial is to be run again. A level that this machine does not permit is Denied: no trial of
// the agent can run here.
func (r Runner) Run(ctx context.Context, a Agent, t Task) (Result, error) {
	dir, err := os.MkdirTemp("", "rollout-trial-")
	if err != nil {
		return infrastructure(err), nil
	}
	defer os.RemoveAll(dir)
	command, err := r.command(dir, a, t)
	if err != nil {
		return infrastructure(err), nil
	}
	proxy := agentproxy.New(r.Servers, r.Model, a.Model, r.Prices, r.Bodies)
	l, err := net.Listen("unix", command.Forwards[0].Socket)
	if err != nil {
		return infrastructure(err), nil
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(running, l) }()
	go func() { // an agent without a model is at its end
		select {
		case <-proxy.Limited():
			stop(errLimited)
		case <-running.Done():
		}
	}()
	o, err := r.Sandbox.Run(running, command)
	limited := errors.Is(context.Cause(running), errLimited)
	stop(nil)
	<-served
	switch {
	case ctx.Err() != nil:
		return Result{}, fault.Wrap(ctx.Err(), "run a trial")
	case fault.Is(err, fault.Denied):
		return Result{}, err
	case err != nil && !limited:
		return infrastructure(err), nil
	}
	result := judge(o, proxy.Use(), command.Out)
	result.Process, result.Model = o, proxy.Use()
	return result, nil
}

// errLimited ends an agent that has used up a limit of its model.
var errLimited = errors.New("the agent has used up its model")

// command returns the command of the agent, with its folders below dir.
func (r Runner) command(dir string, a Agent, t Task) (isolation.Command, error) {
	task, out := filepath.Join(dir, "task"), filepath.Join(dir, "out")
	err := errors.Join(os.Mkdir(task, 0o700), os.Mkdir(out, 0o700),
		os.WriteFile(filepath.Join(task, "task.json"), t.JSON, 0o600))
	c := isolation.Command{Args: a.Args, Out: out, Limits: a.Limits, Trusted: a.Trusted, Staged: []string{task},
		Env: map[string]string{"OPENAI_API_KEY": "none", "ROLLOUT_TRIAL_ID": t.Trial, "ROLLOUT_MODEL": r.Model}}
	maps.Copy(c.Env, a.Env)
	for _, folder := range []string{a.Artifact, t.Files} {
		if folder != "" {
			c.Staged = append(c.Staged, folder)
		}
	}
	c.Forwards = []isolation.Forward{{Socket: filepath.Join(dir, "model"), Env: func(address string) map[string]string {
		return map[string]string{"OPENAI_BASE_URL": "http://" + address + "/v1"}
	}}}
	return c, err
}

// infrastructure is the result of a trial that could not run.
func infrastructure(err error) Result { return Result{End: Infrastructure, Reason: err.Error()} }
