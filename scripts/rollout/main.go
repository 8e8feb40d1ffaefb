// Command rollout is the command line of rollout: it runs, watches and steers batches of prompts.
package main

import (
	"context"
	"os"

	"rollout/gpuworker/isolation"
	"rollout/gpuworker/pipeline/rank"
	"rollout/gpuworker/process"
	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
	"rollout/shared/embedded/machine"
)

func main() {
	if machine.RunGPUProbe(os.Args) || isolation.Main(os.Args) || rank.Main(os.Args) {
		return
	}
	process.TuneMemory(machine.MemoryLimit())
	os.Exit(command.Main(context.Background(), os.Args[1:], command.Env{
		In:     os.Stdin,
		Out:    os.Stdout,
		Err:    os.Stderr,
		Clock:  clock.System{},
		Getenv: os.Getenv,
	}))
}
