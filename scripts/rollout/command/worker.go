package command

import (
	"os"

	"github.com/spf13/cobra"

	"rollout/gpuworker/cli"
	"rollout/shared/fault"
)

// workerCommand is the worker process that up starts: the same as the binary
// gpuworker.
func workerCommand(*Env) *cobra.Command {
	c := cli.Command("worker")
	c.Hidden = true
	c.Annotations = map[string]string{drains: "yes"}
	return c
}

// workerLine is the command line of such a process.
func workerLine(dir string, e *Env, engine, model string, events bool) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fault.As(fault.Internal, err, "find this program")
	}
	line := []string{self, "worker", "--dir", dir, "--engine", engine, "--model", model, "--log-format", e.logFormat}
	if e.logLevel != "" {
		line = append(line, "--log-level", e.logLevel)
	}
	if events {
		line = append(line, "--events")
	}
	return line, nil
}
