package command

import (
	"cmp"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rollout/gpuworker/cli"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/observe/setup"
)

// workerCommand is the worker process that up starts: the same as the binary
// gpuworker.
func workerCommand(*Env) *cobra.Command {
	c := cli.Command("worker")
	c.Hidden = true
	c.Annotations = map[string]string{handlesSignals: "yes"}
	return c
}

// workerLine is the command line of such a process; level is what it logs at
// if nobody says.
func workerLine(dir string, e *Env, level slog.Level, engine config.Engine, model string, watch setup.Options) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fault.WithKind(fault.Internal, err, "find this program")
	}
	return append([]string{self, "worker", "--dir", dir, "--engine", strings.Join(engine.Servers(), ","), "--model", model,
		"--log-format", e.logFormat, "--log-level", cmp.Or(e.logLevel, strings.ToLower(level.String()))}, watch.Args()...), nil
}
