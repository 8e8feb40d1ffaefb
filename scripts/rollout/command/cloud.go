package command

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"rollout/gpuworker/cli"
	"rollout/scripts/rollout/doctor"
	"rollout/scripts/rollout/installation"
	"rollout/scripts/rollout/progress"
	"rollout/shared/aws/stack"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
)

func cloudCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "cloud",
		Short: "Look after an installation in a cloud",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(doctorCommand(e))
	return c
}

// doctorFlags are the arguments of the doctor.
type doctorFlags struct {
	provider, config, format string
	noColour                 bool
}

// Formats of the doctor's report.
const (
	human  = "human"
	asJSON = "json"
)

func doctorCommand(e *Env) *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look whether a cloud can be worked with from here, before a job depends on it",
		Long: "Makes seven checks with the config and the credentials that are found here: reachability, auth, object_store, queue,\n" +
			"secret_store, compute_hint and content_id_roundtrip, which sends 64 MiB to the bucket and back. It removes what it makes.\n\n" +
			"It ends with 0 if all pass; with 1 if one fails; with 2 if the command line or the config is wrong.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error { return e.doctor(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.provider, "provider", "", "the `provider` that the config must be of: aws")
	fs.StringVar(&f.config, "config", local.DeploymentFile, "the `file` that was deployed")
	fs.StringVar(&f.format, "format", human, "human or json")
	fs.BoolVar(&f.noColour, "no-color", false, "write no colours")
	return c
}

func (e *Env) doctor(c *cobra.Command, f doctorFlags) error {
	switch {
	case f.provider == "":
		return usage(c, "--provider is missing: say aws")
	case f.format != human && f.format != asJSON:
		return usage(c, "--format %.32q is none: say %s or %s", f.format, human, asJSON)
	}
	d, err := installation.ReadCloudDeployment(f.config, f.provider, "--config")
	if err != nil {
		return err
	}
	log, err := e.logger(slog.LevelError)
	if err != nil {
		return err
	}
	s, err := stack.OpenStack(c.Context(), d, stack.StackOptions{Source: "doctor", Log: log, Clock: e.Clock})
	if err != nil {
		return err
	}
	return e.examine(c.Context(), doctor.AWS(s, cli.Machine(".", log)), f)
}

// examine makes the checks and writes the report.
func (e *Env) examine(ctx context.Context, checks []doctor.Check, f doctorFlags) (err error) {
	h := doctor.TextPrinter{Out: e.Out, Colours: !f.noColour && e.Getenv("NO_COLOR") == "" && progress.SupportsANSI(e.Out)}
	report := doctor.Run(ctx, checks, e.Clock, func(r doctor.Result) {
		if f.format == human {
			err = errors.Join(err, h.Result(r))
		}
	})
	if f.format == human {
		err = errors.Join(err, h.Summary(report.Summary))
	} else {
		out := json.NewEncoder(e.Out)
		out.SetIndent("", "  ")
		out.SetEscapeHTML(false)
		err = out.Encode(report)
	}
	if n := report.Summary.Failed; err == nil && n > 0 {
		err = fault.New(fault.Unavailable, "%d of %d checks failed", n, len(report.Checks))
	}
	if ctx.Err() != nil {
		err = fault.WithKind(fault.Canceled, ctx.Err(), "look at the cloud")
	}
	return err
}
