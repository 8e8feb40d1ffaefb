// Command gpuworker is one worker process of an installation. It pulls the work of
// one pool and answers it with one engine; see package cli for its flags.
package main

import (
	"context"
	"fmt"
	"os"

	"rollout/gpuworker/cli"
	"rollout/gpuworker/isolation"
	"rollout/gpuworker/pipeline/rank"
	"rollout/gpuworker/process"
	"rollout/shared/embedded/machine"
)

func main() {
	if machine.RunGPUProbe(os.Args) || isolation.Main(os.Args) || rank.Main(os.Args) {
		return
	}
	process.TuneMemory(machine.MemoryLimit())
	code, err := cli.Main(context.Background(), cli.Program{Name: "gpuworker", Stderr: os.Stderr}, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpuworker: %v\n", err)
	}
	os.Exit(code)
}
