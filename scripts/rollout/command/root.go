// Package command is the commands of rollout's command line, one file each.
//
// A command checks its arguments, opens what it needs through package
// installation or local, and calls the Service or driver that does the work: no rule about runs
// stands here. Answers go to Out, everything else to Err.
package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/observe"
)

// commands lists them all: a new command is added here.
func commands(e *Env) []*cobra.Command {
	return []*cobra.Command{
		upCommand(e),
		inferCommand(e),
		trainCommand(e),
		submitCommand(e),
		statusCommand(e),
		resultsCommand(e),
		explainCommand(e),
		pauseCommand(e),
		resumeCommand(e),
		stopCommand(e),
		modelCommand(e),
		bundleCommand(e),
		cleanCommand(e),
		cloudCommand(e),
		snapshotCommand(e),
		backupCommand(e),
		restoreCommand(e),
		serveCommand(e),
		workerCommand(e),
		versionCommand(e),
	}
}

// Env is the world of a command.
type Env struct {
	Out, Err io.Writer
	Clock    clock.Clock
	Getenv   func(string) string

	logLevel  string // "" is the command's own default
	logFormat string
}

// Main runs a command line, without the program's name, and returns its exit
// code: 0 all is well; 1 it failed, or the run that it waited for did not end
// well; 2 the arguments or a config are wrong; 3 stored bytes are damaged. An error is written to Err,
// once.
func Main(ctx context.Context, args []string, e Env) int {
	root := rootCommand(&e)
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err != nil {
		err = suggestDoctor(ran, err)
		_, _ = fmt.Fprintf(e.Err, "rollout: %s\n", withLocationFlags(err.Error(), placeOf(ran))) // nowhere else to say it
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case fault.Is(err, fault.Invalid):
		return 2
	case fault.Is(err, fault.Corrupt):
		return 3
	}
	return 1
}

// suggestDoctor sends whoever met a failure of a cloud's to the doctor.
func suggestDoctor(ran *cobra.Command, err error) error {
	provider := ran.Flags().Lookup("cloud")
	if provider == nil || !installation.ShouldSuggestDoctor(err) {
		return err
	}
	ask := "rollout cloud doctor --provider " + provider.Value.String()
	if dir := ran.Flags().Lookup("dir").Value.String(); dir != "" {
		ask += " --config " + filepath.Join(dir, installation.DeploymentFile)
	}
	return &fault.Error{Kind: fault.KindOf(err), Err: err, Remedy: "`" + ask + "` says what is missing"}
}

// placeOf is the installation that a command line names, if it names one.
func placeOf(ran *cobra.Command) (p installation.Location) {
	if f := ran.Flags().Lookup("dir"); f != nil {
		p.Dir = f.Value.String()
	}
	if f := ran.Flags().Lookup("cloud"); f != nil {
		p.Cloud = f.Value.String()
	}
	if p.Cloud != "" && p.Dir == "" {
		p.Dir = "."
	}
	return p
}

func rootCommand(e *Env) *cobra.Command {
	root := &cobra.Command{
		Use:              "rollout",
		Short:            "Run batches of prompts through an inference engine, each answered exactly once",
		Args:             unknownCommand,
		PersistentPreRun: handleSignals,
		RunE:             func(c *cobra.Command, _ []string) error { return c.Help() },

		SilenceErrors: true, // Main writes them
		SilenceUsage:  true,
	}
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(c, "%v", err) })
	flags := root.PersistentFlags()
	flags.StringVar(&e.logLevel, "log-level", "", "least level of log lines: debug, info, warn or error")
	flags.StringVar(&e.logFormat, "log-format", string(observe.Text), "text or json")
	root.AddCommand(commands(e)...)
	return root
}

// handlesSignals marks commands that handle signals themselves: the first one drains
// their workers.
const handlesSignals = "drains"

// handleSignals lets the first signal end a command's context, and the second
// the process.
func handleSignals(c *cobra.Command, _ []string) {
	if c.Annotations[handlesSignals] != "" {
		return
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	c.SetContext(ctx)
}

// unknownCommand refuses what root's arguments can only be: a misspelt command.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usage(c, "unknown command %q; did you mean %q?", args[0], near[0])
	}
	return usage(c, "unknown command %q", args[0])
}

// usage is an error of the command line itself.
func usage(c *cobra.Command, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf(format, args...), Remedy: "see `" + c.CommandPath() + " --help`"}
}

// arguments demands the named arguments, the last `optional` of which may be
// left out.
func arguments(optional int, names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return usage(c, "unexpected argument %q", args[len(names)])
		case len(args) < len(names)-optional:
			return usage(c, "%s is missing", names[len(args)])
		}
		return nil
	}
}

// placeFlags adds --dir and --cloud, which commands need that ask after or
// steer runs.
func placeFlags(c *cobra.Command) *installation.Location {
	var p installation.Location
	c.Flags().StringVar(&p.Dir, "dir", "", "the installation's `folder`, as given to rollout up; with --cloud that of its rollout.toml, the present one if left out")
	c.Flags().StringVar(&p.Cloud, "cloud", "", "the `provider` of an installation in a cloud: "+installation.ProviderNames())
	return &p
}

// open opens the installation for a command that asks after or steers runs.
func (e *Env) open(c *cobra.Command, p installation.Location) (*installation.Installation, error) {
	return e.openWith(c, p, installation.Options{})
}

func (e *Env) openWith(c *cobra.Command, p installation.Location, o installation.Options) (*installation.Installation, error) {
	switch {
	case p.Cloud != "" && p.Dir == "":
		p.Dir = "."
	case p.Dir == "":
		return nil, usage(c, "--dir is missing: name the folder that `rollout up` runs in, or a cloud with --cloud")
	}
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return nil, err
	}
	o.Log, o.Clock, o.Getenv = log, e.Clock, e.Getenv
	in, err := installation.Open(c.Context(), p, o)
	if err == nil {
		e.Clock = in.Ports.Clock // what is shown is as old as it is there
	}
	return in, err
}

// dirFlag adds --dir, which commands need that work on a laptop's folder.
func dirFlag(c *cobra.Command) *string {
	return c.Flags().String("dir", "", "the installation's `folder`, as given to rollout up")
}

// openLocal opens a laptop's folder.
func (e *Env) openLocal(c *cobra.Command, dir string) (*installation.Local, func() error, error) {
	if err := needDir(c, dir); err != nil {
		return nil, nil, err
	}
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return nil, nil, err
	}
	return installation.OpenLocal(c.Context(), dir, installation.LocalOptions{Log: log, Clock: e.Clock})
}

func needDir(c *cobra.Command, dir string) error {
	if dir == "" {
		return usage(c, "--dir is missing: name the folder that `rollout up` runs in")
	}
	return nil
}

// logger returns the logger that the flags ask for.
func (e *Env) logger(level slog.Level) (*slog.Logger, error) {
	format, err := observe.ParseFormat(e.logFormat)
	if err != nil {
		return nil, fault.Wrap(err, "--log-format")
	}
	if e.logLevel != "" {
		if level, err = observe.ParseLevel(e.logLevel); err != nil {
			return nil, fault.Wrap(err, "--log-level")
		}
	}
	return observe.NewLogger(e.Err, format, level), nil
}
