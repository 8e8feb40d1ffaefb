package command

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/doctor"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/cloud"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
	"rollout/shared/poolcheck"
)

func cloudCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "cloud",
		Short: "Check an installation in a cloud",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(doctorCommand(e))
	return c
}

// doctorFlags are the arguments of the doctor.
type doctorFlags struct {
	provider, config, format string
	json, noColour           bool
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
		Short: "Check whether you can work with a cloud from here, before a job depends on it",
		Long: "Checks, with the config and the credentials of this machine, first what fails first: the provider's own\n" +
			"checks of the account, such as quotas and machine types, then whether the hub and the registries have the\n" +
			"pools' models and images. Then reachability, auth, object_store, queue, secret_store, compute_hint and\n" +
			"content_id_roundtrip, which sends 64 MiB to the bucket and back, and last whether the machines of the pools\n" +
			"can serve their models. What can't be seen from here, or with your rights, is not checked: the report says so,\n" +
			"and it does not fail. Nor is what fails by the cause of an earlier failure. Nothing that it makes stays.\n\n" +
			"Exit codes: 0 if all checks pass, 1 if one fails, 2 if the command line or the config is wrong.",
		Args: arguments(0),
		RunE: func(c *cobra.Command, _ []string) error { return e.doctor(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.provider, "provider", "", "the `provider` that the config names: "+installation.ProviderNames())
	fs.StringVar(&f.config, "config", installation.DeploymentFile, "the `file` that was deployed")
	fs.StringVar(&f.format, "format", human, "human or json")
	fs.BoolVar(&f.json, "json", false, "write JSON, as --format json")
	fs.BoolVar(&f.noColour, "no-color", false, "write without colours")
	return c
}

func (e *Env) doctor(c *cobra.Command, f doctorFlags) error {
	if f.json {
		f.format = asJSON
	}
	switch {
	case f.provider == "":
		return usage(c, "--provider is missing: name one of %s", installation.ProviderNames())
	case f.format != human && f.format != asJSON:
		return usage(c, "--format %.32q is unknown: use %s or %s", f.format, human, asJSON)
	}
	d, err := installation.ReadCloudDeployment(f.config, f.provider, "--config")
	if err != nil {
		return err
	}
	provider, err := installation.ProviderOf(f.provider)
	if err != nil {
		return err
	}
	log, err := e.logger(slog.LevelError)
	if err != nil {
		return err
	}
	in, err := provider.Open(c.Context(), d, cloud.Options{Source: "doctor", Log: log, Clock: e.Clock})
	if err != nil {
		return err
	}
	models := e.modelsOf(provider, d)
	checks := doctor.Checks(in, installation.Machine(".", log), models)
	if poolcheck.Readable(d) {
		checks = append(checks, doctor.CheckModels(models, d))
	}
	return e.examine(c.Context(), checks, f)
}

// examine makes the checks and writes the report.
func (e *Env) examine(ctx context.Context, checks []doctor.Check, f doctorFlags) (err error) {
	h := doctor.TextPrinter{
		Out:     e.Out,
		Colours: !f.noColour && e.Getenv("NO_COLOR") == "" && terminal.SupportsANSI(e.Out),
	}
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
		err = fault.New(fault.Unavailable, "%d of %s failed", n, figures.Of(len(report.Checks), "check"))
	}
	if ctx.Err() != nil {
		err = fault.WithKind(fault.Canceled, ctx.Err(), "check the cloud")
	}
	return err
}
