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

// workerCommand returns the hidden command that up starts as a worker process. It is the same as the binary gpuworker.
func workerCommand(e *Env) *cobra.Command {
	c := cli.Command("worker", e.Plugins)
	c.Hidden = true
	c.Annotations = map[string]string{handlesSignals: "yes"}
	return c
}

// workerProcess says how to start a worker process.
type workerProcess struct {
	dir     string
	engine  config.Engine
	model   string
	level   slog.Level // of its log lines, unless --log-level says otherwise
	observe setup.Options
	set     []string // of --set
	plugins []string // of --plugin
	reload  bool     // of --hot-reload
}

// workerCommandLine returns the command line of a worker process.
func (e *Env) workerCommandLine(w workerProcess) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fault.WithKind(fault.Internal, err, "find this program")
	}
	args := []string{
		self, "worker", "--dir", w.dir, "--engine", strings.Join(w.engine.Servers(), ","), "--model", w.model,
		"--log-format", e.logFormat, "--log-level", cmp.Or(e.logLevel, strings.ToLower(w.level.String())),
	}
	for _, setting := range w.set {
		args = append(args, "--set", setting)
	}
	for _, path := range w.plugins {
		args = append(args, "--plugin", path)
	}
	if w.reload {
		args = append(args, "--hot-reload")
	}
	return append(args, w.observe.Args()...), nil
}
