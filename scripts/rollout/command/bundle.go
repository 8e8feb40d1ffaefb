package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/bundle"
	"rollout/shared/capacity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/listen"
)

func bundleCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "bundle RUN",
		Short: "Pack what others need to see to find out what is wrong with a run",
		Long: "Packs documents, config, queues, failed items' places and classes, machine facts and the ends of logs into a new .tar.gz.\n" +
			"No prompt, answer, message of a failed item or secret is in it; items' ids are hashed.\n\n" +
			"RUN is a run's id, an unambiguous beginning of it, or a name: then the newest run of that name.",
		Args: arguments(0, "RUN"),
	}
	place := placeFlags(c)
	out := c.Flags().StringP("out", "o", "", "the `file` to write; rollout-RUN.tar.gz if empty, - for standard output")
	withIDs := c.Flags().Bool("with-ids", false, "show the items' own ids as they are")
	logs := c.Flags().StringArray("log", nil, "a log or event `file` whose end to pack; may be given several times")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		r, err := e.openRun(c, *place, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		secrets, err := e.secretTexts(c.Context(), r.Installation)
		if err != nil {
			return err
		}
		o := bundle.Options{Ports: r.Ports, Service: r.service, Deployment: r.Deployment, Run: r.run.Run, WithIDs: *withIDs, Logs: *logs,
			Secrets: secrets, Version: bundle.Version{Rollout: version(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH},
			Machine: machineFacts(c.Context(), r.Dir)}
		if *out == "" {
			*out = "rollout-" + string(r.run.Run) + ".tar.gz"
		}
		return e.bundle(c.Context(), *out, o)
	}
	return c
}

func (e *Env) bundle(ctx context.Context, path string, o bundle.Options) error {
	if path == "-" {
		_, err := bundle.Write(ctx, e.Out, o)
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s already exists", path),
			Remedy: "name another file with -o, or remove it"}
	}
	if err != nil {
		return &fault.Error{Kind: fault.Invalid, Op: "write the bundle", Err: err, Remedy: "name a file that can be written with -o"}
	}
	entries, err := bundle.Write(ctx, f, o)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // half a bundle helps nobody
	}
	for _, entry := range entries {
		if _, err := fmt.Fprintf(e.Err, "%-20s %s\n", entry.Name, entry.Description); err != nil {
			return err
		}
	}
	_, err = io.WriteString(e.Out, path+"\n")
	return err
}

// secretTexts are the values of all secrets that the installation may read:
// none of them may be shown, wherever it stands. One that can't be read is not
// looked for, which whoever sends the bundle is told.
func (e *Env) secretTexts(ctx context.Context, in *installation.Installation) ([]string, error) {
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
		case !fault.Is(err, fault.NotFound): // one that is not set can't be shown
			if _, err := fmt.Fprintf(e.Err, "the secret %q can't be read, so it would stay wherever it stands: %v\n", name, err); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// machineFacts are what there is of the machine, as far as it can be told.
func machineFacts(ctx context.Context, dir string) any {
	inv, err := installation.Machine(dir, slog.New(slog.DiscardHandler)).Inventory(ctx)
	facts := struct {
		capacity.Inventory
		GoMaxProcs int    `json:"gomaxprocs"`
		Problem    string `json:"problem"` // why the rest is not known
	}{inv, runtime.GOMAXPROCS(0), ""}
	if err != nil {
		facts.Problem = err.Error()
	}
	return facts
}
