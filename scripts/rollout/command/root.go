// Package command implements the subcommands of rollout, one file for each.
//
// A command checks its arguments, opens an installation, and calls the api.Service or the driver that does the work.
// Results go to Env.Out, everything else to Env.Err. The package decides nothing about runs and reads the environment
// only through Env.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rollout/gpuworker/cli"
	"rollout/gpuworker/plugin"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/observe"
	"rollout/shared/text"
)

// commands returns all subcommands by the groups of the help. Add a new one here.
func commands(e *Env) []commandGroup {
	return []commandGroup{
		{"run", "Answer prompts:", []*cobra.Command{
			upCommand(e), submitCommand(e), planCommand(e), inferCommand(e), convertCommand(e), configCommand(e)}},
		{"look", "Look at runs (RUN is a run's id, the beginning of it, or its name):", []*cobra.Command{
			statusCommand(e), explainCommand(e), resultsCommand(e), showCommand(e), compareCommand(e), reportCommand(e),
			guidanceCommand(e)}},
		{"steer", "Steer runs:", []*cobra.Command{
			pauseCommand(e), resumeCommand(e), stopCommand(e), retryCommand(e), amendCommand(e)}},
		{"train", "Train and serve the built-in model:", []*cobra.Command{
			trainCommand(e), snapshotCommand(e), modelCommand(e), serveCommand(e)}},
		{"keep", "Keep an installation:", []*cobra.Command{
			cleanCommand(e), backupCommand(e), restoreCommand(e), bundleCommand(e), notifyCommand(e), cloudCommand(e),
			joinTokenCommand(e), joinedCommand(e), workerCommand(e)}},
		{"", "", []*cobra.Command{versionCommand(e)}},
	}
}

// commandGroup is a group of subcommands in the help; "" is that of the rest.
type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// Env is the environment of a command.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Clock    clock.Clock
	Getenv   func(string) string
	// Plugins are those that are compiled into the program; nil has none.
	Plugins plugin.Registry

	logLevel  string // "" selects the command's default
	logFormat string
}

// Main runs a command line, given without the program's name. It writes an error to Err once, and returns the exit
// code: 0 for success; 1 if the command failed, or the run that it waited for did not succeed; 2 if the arguments or a
// config are invalid, or the run has expired; 3 if stored data is damaged.
func Main(ctx context.Context, args []string, e Env) int {
	e.Err = surviving(e.Err)
	root := rootCommand(&e)
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err != nil {
		err = suggestDoctor(ran, err)
		_ = e.say("rollout: %s", withLocationFlags(err.Error(), locationOf(ran))) // reported nowhere else
	}
	return exitCode(err)
}

// say writes a sentence, or several lines, to Err, wrapped at words to the width of a terminal.
func (e *Env) say(format string, args ...any) error {
	_, err := io.WriteString(e.Err, terminal.Sentences(fmt.Sprintf(format, args...), terminal.Columns(e.Err))+"\n")
	return err
}

// surviving returns the standard error, or one that loses what is written after its reader
// has gone, as in 2> >(head -1): no command fails by that.
func surviving(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok && !terminal.Is(w) {
		return unread{w}
	}
	return w
}

// unread is a file, perhaps a pipe without a reader.
type unread struct{ to io.Writer }

func (u unread) Write(b []byte) (int, error) {
	n, err := u.to.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	return n, err
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case fault.Is(err, fault.Invalid), host.IsExpired(err):
		return 2
	case fault.Is(err, fault.Corrupt):
		return 3
	}
	return 1
}

// suggestDoctor adds `rollout cloud doctor` as the remedy of an error that comes from a cloud.
func suggestDoctor(ran *cobra.Command, err error) error {
	provider := ran.Flags().Lookup("cloud")
	if provider == nil || !installation.ShouldSuggestDoctor(err) {
		return err
	}
	line := "rollout cloud doctor --provider " + provider.Value.String()
	if dir := ran.Flags().Lookup("dir").Value.String(); dir != "" {
		line += " --config " + filepath.Join(dir, installation.DeploymentFile)
	}
	return &fault.Error{Kind: fault.KindOf(err), Err: err, Remedy: "run `" + line + "` to find the cause"}
}

// locationOf returns the installation that the command line names, or the zero Location.
func locationOf(ran *cobra.Command) (p installation.Location) {
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
		Short:            "Run batches of prompts through an inference engine and answer each prompt exactly once",
		Example:          firstSession,
		Args:             unknownCommand,
		PersistentPreRun: e.beforeCommand,
		RunE:             func(c *cobra.Command, _ []string) error { return c.Help() },

		SilenceErrors: true, // Main writes errors
		SilenceUsage:  true,
	}
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&e.logLevel, "log-level", "", "minimum `level` of log lines: debug, info, warn or error")
	flags.StringVar(&e.logFormat, "log-format", string(observe.Text), "`format` of log lines: text or json")
	for _, g := range commands(e) {
		if g.id != "" {
			root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		}
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	e.fitHelp(root)
	return root
}

// beforeCommand prepares every command: it completes --dir and handles signals.
func (e *Env) beforeCommand(c *cobra.Command, args []string) {
	if f := c.Flags().Lookup("dir"); f != nil && !f.Changed {
		// The flag is a string: any value is accepted. It stays unchanged for those who ask
		// whether the user gave it.
		_ = f.Value.Set(e.Getenv(cli.DirVariable))
	}
	handleSignals(c, args)
}

// handlesSignals is the annotation of commands that handle signals themselves: on the first signal they drain their
// workers.
const handlesSignals = "handles-signals"

// handleSignals makes the first signal cancel the command's context and the second end the process.
func handleSignals(c *cobra.Command, _ []string) {
	if c.Annotations[handlesSignals] != "" {
		return
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	c.SetContext(ctx)
}

// maxTypos is how many letters a misspelled command may differ in from the one that is suggested. Two swapped letters
// are two.
const maxTypos = 2

// unknownCommand rejects arguments of a command that only has subcommands: they can only be a misspelled subcommand.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	for _, other := range c.Commands() {
		if slices.Contains(other.SuggestFor, strings.ToLower(args[0])) {
			return usage(c, "unknown command %q; did you mean %q?", args[0], other.Name())
		}
	}
	c.SuggestionsMinimumDistance = min(maxTypos, len(args[0])/2)
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usage(c, "unknown command %q; did you mean %q?", args[0], near[0])
	}
	return usage(c, "unknown command %q", args[0])
}

// flagError returns the error of a flag that the command does not know. A misspelled command is the error if there is
// one, because its flags are then read as those of the command above it.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() {
		if unknown := unknownCommand(c, c.Flags().Args()); unknown != nil { // the arguments before the flag
			return unknown
		}
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := text.Nearest(names, unknown.GetSpecifiedName()); near != "" {
			return usage(c, "%v; did you mean --%s?", err, near)
		}
	}
	return usage(c, "%v", err)
}

// usage returns an error of the command line, with the command's --help as the remedy.
func usage(c *cobra.Command, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf(format, args...),
		Remedy: "see `" + c.CommandPath() + " --help`"}
}

// arguments requires the named arguments. The last `optional` ones may be left out.
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

// locationFlags adds --dir and --cloud to commands that show or steer runs.
func locationFlags(c *cobra.Command) *installation.Location {
	var p installation.Location
	c.Flags().StringVar(&p.Dir, "dir", "", "the installation's `folder`, as given to rollout up; "+
		"with --cloud the folder of its rollout.toml (default: $"+cli.DirVariable+
		", else with --cloud the current directory)")
	c.Flags().StringVar(&p.Cloud, "cloud", "",
		"the `provider` of an installation in a cloud: "+installation.ProviderNames())
	return &p
}

// open opens the installation for a command that shows or steers runs.
func (e *Env) open(c *cobra.Command, p installation.Location) (*installation.Installation, error) {
	return e.openWith(c, p, installation.Options{})
}

func (e *Env) openWith(
	c *cobra.Command, p installation.Location, o installation.Options,
) (*installation.Installation, error) {
	switch {
	case p.Cloud != "" && p.Dir == "":
		p.Dir = "."
	case p.Dir == "":
		return nil, usage(c, "--dir is missing: name the folder that `rollout up` runs in, also in "+cli.DirVariable+
			", or a cloud with --cloud")
	}
	log, err := e.logger(slog.LevelWarn)
	if err != nil {
		return nil, err
	}
	o.Log, o.Clock, o.Getenv = log, e.Clock, e.Getenv
	in, err := installation.Open(c.Context(), p, o)
	if err == nil {
		e.Clock = in.Ports.Clock // ages are shown by the installation's clock
	}
	return in, err
}

// dirFlag adds --dir to commands that need an installation on this machine.
func dirFlag(c *cobra.Command) *string {
	return c.Flags().String("dir", "",
		"the installation's `folder`, as given to rollout up (default: $"+cli.DirVariable+")")
}

// openLocal opens an installation on this machine. The caller must call the returned function to close it.
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
		return usage(c, "--dir is missing: name the folder that `rollout up` runs in, also in "+cli.DirVariable)
	}
	return nil
}

// logger returns a logger as the flags --log-level and --log-format say; level is the default level.
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
