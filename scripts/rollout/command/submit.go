package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
)

func submitCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Put a file of prompts into the bucket, which makes it a run",
		Long: "Copies FILE (.jsonl, .jsonl.gz or .jsonl.zst) to prompts/ of the bucket, after its config, and prints the id of the run that it is.\n\n" +
			"The config is --config, else the .toml beside FILE, else what the bucket has for it.",
		Args: arguments(0, "FILE"),
	}
	place := placeFlags(c)
	configPath := c.Flags().String("config", "", "the run's config `file`")
	wait := c.Flags().Bool("wait", false, "follow the run to its end; exit with 1 if it does not end well")
	c.RunE = func(c *cobra.Command, args []string) error {
		return e.submit(c, *place, args[0], *configPath, *wait)
	}
	return c
}

func (e *Env) submit(c *cobra.Command, place installation.Location, file, configPath string, wait bool) (err error) {
	ctx := c.Context()
	in, err := e.openWith(c, place, installation.Options{AllowUninitialized: !wait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	up, err := checkUpload(ctx, in, file, configPath)
	if err != nil {
		return err
	}
	if in.Uninitialized {
		if _, err := fmt.Fprintf(e.Err, "the run will begin when `rollout up %s` is started\n", in.Flags()); err != nil {
			return err
		}
		_, err = e.upload(ctx, in, up)
		return err
	}
	service := api.New(in.Ports, in.Deployment, in.Profile)
	if err := checkNotInUse(ctx, service, up.key); err != nil {
		return err
	}
	id, err := e.upload(ctx, in, up)
	if err != nil || !wait {
		return err
	}
	return e.follow(ctx, in, service, id, up.key)
}

// upload puts the config and then the prompts into the bucket and prints the
// id of the run that they are.
func (e *Env) upload(ctx context.Context, in *installation.Installation, up upload) (identity.RunID, error) {
	if err := up.putConfig(ctx, in); err != nil {
		return "", err
	}
	var shown *progress.Transfer
	info, err := in.Store(ctx, up.file, up.key, func(r io.Reader, size int64) io.Reader {
		shown = progress.NewTransfer(e.Err, filepath.Base(up.file), size)
		return shown.Reader(r)
	})
	shown.Close()
	if err != nil {
		return "", err
	}
	id := identity.UploadRun(in.Deployment.Bucket, up.key, info.Version)
	_, err = fmt.Fprintln(e.Out, id)
	return id, err
}

// checkNotInUse refuses to replace an object that an open run still reads.
func checkNotInUse(ctx context.Context, service *api.Service, key string) error {
	runs, err := service.List(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		for _, in := range r.Inputs {
			if in == key && !r.Phase.Ended() {
				return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s still reads %s", r.Run, key),
					Remedy: "wait until it has ended, stop it, or give the file another name"}
			}
		}
	}
	return nil
}

// eventPatience is how long the event of a cloud's bucket may take.
const eventPatience = 30 * time.Second

// follow shows the run until it has ended, and what became of it.
func (e *Env) follow(ctx context.Context, in *installation.Installation, service *api.Service, id identity.RunID, key string) error {
	f := progress.Follower{Source: service, View: progress.NewView(e.Err, e.Clock), Clock: e.Clock, Every: in.Poll}
	if in.Cloud != "" {
		f.Patience, f.OnNotStarted = eventPatience, func(ctx context.Context) string { return resendUpload(ctx, service, key) }
	}
	s, err := f.Follow(ctx, id)
	if err != nil {
		return err
	}
	if err := progress.WriteSummary(ctx, e.Err, s, in.Ports.Blobs, in.Path); err != nil {
		return err
	}
	return progress.Outcome(s, in.Path)
}

// resendUpload tells the stack about an object of which its bucket has not told
// for long, and says so. The run is the same either way.
func resendUpload(ctx context.Context, service *api.Service, key string) string {
	const late = "the bucket's event has not become a run yet"
	if _, err := service.Submit(ctx, key); err != nil {
		return late + ", and the stack can't be told otherwise: " + err.Error()
	}
	return late + ": the stack was told once more"
}
