package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/scripts/rollout/progress"
	"rollout/shared/config"
	"rollout/shared/embedded"
	"rollout/shared/embedded/local"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
)

func submitCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Put a file of prompts into the bucket, which makes it a run",
		Long: "Copies FILE (.jsonl, .jsonl.gz or .jsonl.zst) to prompts/ of the bucket, after its config, and prints the id of the run that it is.\n\n" +
			"The config is --config, else the .toml beside FILE, else what the bucket has for it.",
		Args: arguments(0, "FILE"),
	}
	dir := dirFlag(c)
	configPath := c.Flags().String("config", "", "the run's config `file`")
	wait := c.Flags().Bool("wait", false, "follow the run to its end; exit with 1 if it does not end well")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := needDir(c, *dir); err != nil {
			return err
		}
		return e.submit(c, *dir, args[0], *configPath, *wait)
	}
	return c
}

func (e *Env) submit(c *cobra.Command, dir, file, configPath string, wait bool) (err error) {
	ctx := c.Context()
	up, err := checkUpload(dir, file, configPath)
	if err != nil {
		return err
	}
	has, err := local.HasState(dir)
	if err != nil {
		return err
	}
	if !has && !wait {
		if err := e.hintNoState(dir); err != nil {
			return err
		}
		d, err := local.ReadDeployment(dir)
		if err != nil {
			return err
		}
		_, err = e.upload(ctx, d, up)
		return err
	}
	l, closeAll, err := e.open(c, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	service := api.New(l.Ports, l.Deployment)
	if err := mustBeFree(ctx, service, up.key); err != nil {
		return err
	}
	id, err := e.upload(ctx, l.Deployment, up)
	if err != nil || !wait {
		return err
	}
	return e.follow(ctx, l, service, id)
}

// hintNoState refuses a folder that is not there, which is a misspelt one, and
// says when the run will begin.
func (e *Env) hintNoState(dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no folder %s", dir),
			Remedy: fmt.Sprintf("start `rollout up --dir %s` first, or name the folder that it runs in", dir)}
	}
	_, err := fmt.Fprintf(e.Err, "the run will begin when `rollout up --dir %s` is started\n", dir)
	return err
}

// upload puts the config and then the prompts into the bucket and prints the
// id of the run that they are.
func (e *Env) upload(ctx context.Context, d config.Deployment, up upload) (identity.RunID, error) {
	if err := up.putConfig(ctx); err != nil {
		return "", err
	}
	info, err := embedded.RenameInto(ctx, up.bucket, up.file, up.key)
	if err != nil {
		return "", err
	}
	id := identity.UploadRun(d.Bucket, up.key, info.Version)
	_, err = fmt.Fprintln(e.Out, id)
	return id, err
}

// mustBeFree refuses to replace an object that an open run still reads.
func mustBeFree(ctx context.Context, service *api.Service, key string) error {
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

// follow shows the run until it has ended, and what became of it.
func (e *Env) follow(ctx context.Context, l *local.Local, service *api.Service, id identity.RunID) error {
	s, err := progress.Follow(ctx, service, id, progress.NewView(e.Err, e.Clock), e.Clock)
	if err != nil {
		return err
	}
	if err := progress.Closing(ctx, e.Err, s, l.Bucket, progress.Under(local.BucketDir(l.Dir))); err != nil {
		return err
	}
	return progress.Outcome(s)
}
