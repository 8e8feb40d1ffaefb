package trial

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

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
	Model string // the model's name, in ROLLOUT_MODEL
	Seed  int64  // in ROLLOUT_SEED
	JSON  []byte // task.json: the task without what it expects
	// Begin is agentproxy.Options.Begin.
	Begin func(ctx context.Context, promptBytes int, maxTokens int64) (ended func(agentproxy.Tokens), err error)
}

// End says whose end a trial had.
type End string

// The ends.
const (
	Answered       End = "answered"
	Limited        End = "limited"        // Result.Limit
	ResultError    End = "result_error"   // Result.Reason
	GradeError     End = "grade_error"    // Result.Reason
	Infrastructure End = "infrastructure" // Result.Reason and Class
	// NotStarted is a program that cannot start, whatever the task: it is missing, or its files
	// are over its limits. Result.Reason says why.
	NotStarted End = "not_started"
)

// Result is what became of a trial.
type Result struct {
	End    End
	Limit  string // which limit. Examples: "time_limit", "tokens"
	Reason string
	Class  fault.Class // of Infrastructure: Engine, Sandbox or Storage

	Found  bool               // a result was left, also of a Limited trial
	Answer string             // the member answer of the result; what graders read
	JSON   []byte             // the result, compact
	Scores map[string]float64 // of grade.json: by grader; "" is the only one of {"score": …}

	// What was measured differs between two runs of the same agent.
	Process isolation.Outcome
	Model   agentproxy.Use
}

// Run runs the agent on the task. It returns an error only if ctx ends, which is Canceled: the
// trial is to be run again; the Result has what its model was used for. A level that this machine
// does not permit is Denied: no trial of the agent can run here.
func (r Runner) Run(ctx context.Context, a Agent, t Task) (Result, error) {
	dir, release, err := r.Sandbox.Scratch()
	if err != nil {
		return infrastructure(err), nil
	}
	result, err := r.run(ctx, dir, a, t)
	if releaseErr := release(); err == nil && releaseErr != nil && result.End == "" {
		return infrastructure(releaseErr), nil
	}
	return result, err
}

func (r Runner) run(ctx context.Context, dir string, a Agent, t Task) (Result, error) {
	key := rand.Text()
	proxy := agentproxy.New(agentproxy.Options{Servers: r.Servers, Model: t.Model, Limits: a.Model, Prices: r.Prices,
		Bodies: r.Bodies, Key: key, Begin: t.Begin})
	command, err := command(dir, a, t, proxy, key)
	if err != nil {
		return infrastructure(err), nil
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // an agent without a model is at its end
		select {
		case <-proxy.Limited():
			stop(errLimited)
		case <-running.Done():
		}
	}()
	o, err := r.Sandbox.Run(running, command)
	limited := errors.Is(context.Cause(running), errLimited)
	switch {
	case ctx.Err() != nil:
		return Result{Model: proxy.Use()}, fault.Wrap(ctx.Err(), "run a trial")
	case fault.Is(err, fault.Denied):
		return Result{}, err
	case err != nil && (!limited || isFull(err)): // a result that the disk has no room for is lost
		result := infrastructure(err)
		result.Process, result.Model = o, proxy.Use()
		return result, nil
	}
	result := judge(o, proxy.Use(), command.Out)
	result.Process, result.Model = o, proxy.Use()
	return result, nil
}

// errLimited ends an agent that has used up a limit of its model.
var errLimited = errors.New("the agent has used up its model")

// command returns the command of the agent, with its folders below dir.
func command(dir string, a Agent, t Task, proxy *agentproxy.Proxy, key string) (isolation.Command, error) {
	task, out := filepath.Join(dir, "task"), filepath.Join(dir, "out")
	err := errors.Join(os.Mkdir(task, 0o700), os.Mkdir(out, 0o700),
		os.WriteFile(filepath.Join(task, "task.json"), t.JSON, 0o600))
	c := isolation.Command{Args: a.Args, Out: out, Limits: a.Limits, Trusted: a.Trusted, Staged: []string{task},
		Env: map[string]string{"OPENAI_API_KEY": key, "ROLLOUT_TRIAL_ID": t.Trial, "ROLLOUT_MODEL": t.Model,
			"ROLLOUT_SEED": strconv.FormatInt(t.Seed, 10)}}
	maps.Copy(c.Env, a.Env)
	if a.Artifact != "" {
		c.Staged = append(c.Staged, a.Artifact)
	}
	c.Forwards = []isolation.Forward{{
		Serve: func(ctx context.Context, l net.Listener) error { return proxy.Serve(ctx, l) },
		Env: func(address string) map[string]string {
			return map[string]string{"OPENAI_BASE_URL": "http://" + address + "/v1"}
		},
	}}
	return c, err
}

// isFull reports whether a disk has no room.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// infrastructure is the result of a trial that could not run. A disk that is full has a class of
// its own.
func infrastructure(err error) Result {
	class := fault.Sandbox
	if isFull(err) {
		class = fault.Storage
	}
	return Result{End: Infrastructure, Reason: err.Error(), Class: class}
}
