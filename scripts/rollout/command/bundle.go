package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/bundle"
	"rollout/scripts/rollout/outfile"
	"rollout/shared/capacity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/listen"
)

func bundleCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "bundle RUN",
		Short: "Pack a support bundle, from which others can debug a run",
		Long: "Packs documents, config, queues, places and classes of failed items, machine facts and the ends of logs\n" +
			"into a new .tar.gz file. It contains no prompts, completions, messages of failed items or secrets; ids of\n" +
			"items are hashed.\n\n" + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	out := c.Flags().StringP("out", "o", "", "the `file` to write, or - for standard output (default: rollout-RUN.tar.gz)")
	withIDs := c.Flags().Bool("with-ids", false, "include the items' own ids unhashed")
	logs := c.Flags().StringArray("log", nil, "a log or event `file` whose end to pack (repeat it for several)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *location, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		secrets, err := e.secretValues(c.Context(), r.Installation)
		if err != nil {
			return err
		}
		o := bundle.Options{
			Ports: r.Ports, Service: r.service, Deployment: r.Deployment, Run: r.run.Run,
			WithIDs: *withIDs, Logs: *logs, Secrets: secrets,
			Version: bundle.Version{Rollout: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH},
			Machine: machineFacts(c.Context(), r.Dir),
		}
		if *out == "" {
			*out = "rollout-" + string(r.run.Run) + ".tar.gz"
		}
		return e.bundle(c.Context(), *out, o)
	}
	return c
}

// bundle writes the bundle to a new file and lists its entries, or to Out if path is "-".
func (e *Env) bundle(ctx context.Context, path string, o bundle.Options) error {
	if path == "-" {
		_, err := bundle.Write(ctx, e.Out, o)
		return err
	}
	if _, err := os.Lstat(path); err == nil { // fails early; CloseAndRenameNew checks again
		return outfile.Exists(path)
	}
	f, err := outfile.CreateSecret(path)
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Op: "write the bundle", Err: err,
			Remedy: "name a writable file with -o"}
	}
	entries, err := bundle.Write(ctx, f, o)
	if err != nil {
		return f.Discard(err) // an incomplete bundle cannot be unpacked
	}
	if err := f.CloseAndRenameNew(); err != nil {
		return err
	}
	for _, entry := range entries {
		if _, err := fmt.Fprintf(e.Err, "%-20s %s\n", entry.Name, entry.Description); err != nil {
			return err
		}
	}
	_, err = io.WriteString(e.Out, path+"\n")
	return err
}

// secretValues returns the values of all secrets that the installation may read, so that the bundle can remove them
// from its files. It prints a warning about a secret that cannot be read, because the bundle may contain it.
func (e *Env) secretValues(ctx context.Context, in *installation.Installation) ([]string, error) {
	names := in.Deployment.Secrets
	if in.Cloud == "" {
		names = append([]string{listen.TokenSecret}, names...)
	}
	var out []string
	for _, name := range names {
		v, err := in.Secrets.Get(ctx, name)
		switch {
		case err == nil:
			out = append(out, v.Reveal())
		case !fault.Is(err, fault.NotFound):
			if err := e.say("warning: secret %q cannot be read, so the bundle may contain it: %v", name, err); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// machineFacts returns the machine's inventory, as far as it can be determined.
func machineFacts(ctx context.Context, dir string) any {
	inv, err := installation.Machine(dir, slog.New(slog.DiscardHandler)).Inventory(ctx)
	facts := struct {
		capacity.Inventory
		GoMaxProcs int    `json:"gomaxprocs"`
		Problem    string `json:"problem"` // why the rest is unknown
	}{inv, runtime.GOMAXPROCS(0), ""}
	if err != nil {
		facts.Problem = err.Error()
	}
	return facts
}
