package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"rollout/gpuworker/executors/trial"
	"rollout/gpuworker/isolation"
	"rollout/gpuworker/online"
	"rollout/gpuworker/worker"
	"rollout/shared/core/cost"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/onlinewire"
)

// agents is what a process needs to run the programs of trials. The zero value runs none.
type agents struct {
	sandbox   *isolation.Sandbox
	broken    error // why there is no sandbox although programs are permitted
	artifacts *trial.Artifacts
	level     string // of isolation, for heartbeats; "" where no programs are permitted
	atOnce    int
	memory    int64 // bytes
	bodies    *onlinewire.Bodies
}

// newAgents opens the sandboxes of the machine if the deployment permits programs.
func (o Options) newAgents(ctx context.Context) agents {
	if !o.Deployment.Trials.Processes {
		return agents{}
	}
	a := agents{bodies: onlinewire.NewBodies(), level: isolation.Refused.String()}
	if a.sandbox, a.broken = o.openSandbox(); a.broken != nil {
		a.sandbox, a.broken = nil, fault.Wrap(a.broken, "this machine cannot run agents")
		o.Ports.Log.WarnContext(ctx, "no agents can run", observe.KeyError, a.broken)
		return a
	}
	level, reason := a.sandbox.Probe(ctx)
	a.level = level.String()
	if level != isolation.Full {
		o.Ports.Log.WarnContext(ctx, "agents are isolated less than fully", "level", a.level, observe.KeyReason, reason)
	}
	a.artifacts = &trial.Artifacts{Sandbox: a.sandbox, Blobs: o.Ports.Blobs}
	a.atOnce, a.memory = o.roomForAgents(ctx)
	return a
}

// openSandbox opens the sandboxes of the machine, which all workers of this user share.
func (o Options) openSandbox() (*isolation.Sandbox, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("rollout-sandboxes-%d", os.Geteuid()))
	return isolation.Open(dir, o.Private...)
}

// leastMemory is what agents may have on a machine that does not tell its memory.
const leastMemory = 2 << 30

// roomForAgents returns how many agents a worker runs at once, and how many bytes their memory
// limits may have together: its share of three quarters of the machine's.
func (o Options) roomForAgents(ctx context.Context) (atOnce int, memory int64) {
	sharing := max(1, o.SharedBy)
	atOnce, memory = o.Deployment.Trials.AtOnce, leastMemory
	if atOnce == 0 {
		atOnce = max(1, runtime.GOMAXPROCS(0)/sharing)
	}
	if o.Machine != nil {
		if inv, err := o.Machine.Inventory(ctx); err == nil && inv.MemoryBytes > 0 {
			memory = int64(inv.MemoryBytes / 4 * 3)
		}
	}
	return atOnce, memory / int64(sharing)
}

// close removes the files of agents.
func (a agents) close() error {
	if a.artifacts == nil {
		return nil
	}
	return a.artifacts.Close()
}

// withAgents returns an executor of agents, which leaves all other shards to next.
func (a inference) withAgents(next worker.Executor) worker.Executor {
	e := a.o.Deployment.Engine
	return trial.New(trial.Config{Next: next, NoSandbox: a.agents.broken, Artifacts: a.agents.artifacts,
		Graders: a.graders,
		Clock:   a.o.Ports.Clock, Log: a.o.Ports.Log, AtOnce: a.agents.atOnce, Memory: a.agents.memory,
		Runner: trial.Runner{Sandbox: a.agents.sandbox, Servers: online.PasserOf(a.online()), Bodies: a.agents.bodies,
			Prices: cost.TokenPrices{Prompt: e.PromptPrice, Completion: e.CompletionPrice}}})
}
