package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/kind"
)

func submitCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Start a run by copying a prompts file into the bucket",
		Long: "Copies FILE (.jsonl, .jsonl.gz or .jsonl.zst) and its config to prompts/ in the bucket, and prints the id\n" +
			"of the run. A line is {\"id\": \"a\", \"prompt\": \"...\"}, or {\"id\": \"a\", \"messages\": [...]}, or one of\n" +
			"OpenAI's batches.\n\n" +
			"The config is --config, else the .toml file of the same name next to FILE, else the one in the bucket, else\n" +
			"[defaults] of the installation. --set changes it for this run alone.\n\n" +
			"In doubt, --dry-run checks the config and every line, and starts nothing. --sample N first asks N random\n" +
			"lines, as a run NAME-sample, and tells what the whole file takes: tokens, time and, with prices in the\n" +
			"config, dollars. --limit N asks the first N lines, as NAME-head. Submit the whole with the command that they\n" +
			"print.\n\n" +
			"Runs share the workers of their pool by run.priority: low, normal, high, or a weight.",
		Example: "  rollout submit nightly.jsonl --sample 200                      # what will it take?\n" +
			"  rollout submit nightly.jsonl --set sampling.max_tokens=800 --wait\n" +
			"  rollout submit urgent.jsonl --set run.priority=high            # beside a large run\n" +
			"  rollout submit nightly.jsonl --set model.uri=another-model     # then rollout compare RUN RUN",
		Args: arguments(0, "FILE"),
	}
	location := locationFlags(c)
	configPath := c.Flags().String("config", "", "the run's config `file`")
	settings := setFlag(c, "over the config: a `setting` such as sampling.max_tokens=800")
	wait := c.Flags().Bool("wait", false, "follow the run to its end; exit with 1 if it does not succeed")
	dryRun := c.Flags().Bool("dry-run", false, dryRunUsage)
	tryOut := c.Flags().Bool("preflight", false, preflightUsage)
	engineURL := c.Flags().String("engine", "", "with --preflight: the `URL` of the server, else that of the config")
	part := partFlags(c)
	asJSON := c.Flags().Bool("json", false,
		"with --dry-run, --preflight, --sample and --limit: print the result as one JSON object")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := part.check(c); err != nil {
			return err
		}
		switch {
		case *asJSON && !*dryRun && !*tryOut && !part.asked():
			return usage(c, "--json prints what --dry-run, --preflight, --sample or --limit finds: use it with one of them")
		case *tryOut && (*dryRun || *wait || part.asked()):
			return usage(c, "--preflight starts no run: use it without --dry-run, --wait, --sample and --limit")
		case *engineURL != "" && !*tryOut:
			return usage(c, "--engine is for --preflight: workers have the engine of their config")
		case *tryOut:
			return e.tryTrials(c, submission{*location, args[0], *configPath, *settings}, *engineURL, *asJSON)
		case *dryRun && *wait:
			return usage(c, "--dry-run starts no run that --wait could follow")
		case *dryRun && part.asked():
			return usage(c, "--dry-run checks every line and asks none: use it without --sample and --limit")
		case part.asked():
			return e.submitPart(c, submission{*location, args[0], *configPath, *settings}, *part, *asJSON)
		case *dryRun:
			return e.dryRunSubmit(c, *location, args[0], *configPath, *settings, *asJSON)
		}
		return e.submit(c, *location, args[0], *configPath, *settings, *wait)
	}
	return c
}

func (e *Env) submit(
	c *cobra.Command, location installation.Location, file, configPath string, settings []string, wait bool,
) (err error) {
	ctx := c.Context()
	in, err := e.openWith(c, location, installation.Options{AllowUninitialized: !wait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if err := in.CheckOwner(ctx); err != nil {
		return err
	}
	up, err := checkUpload(ctx, in, file, configPath, settings)
	if err != nil {
		return err
	}
	if err := e.sayConfig(in, up); err != nil {
		return err
	}
	if err := e.warnOfPools(ctx, in.Deployment); err != nil {
		return err
	}
	if in.Uninitialized {
		if err := e.say("the run will start when you start `rollout up %s`", in.Flags()); err != nil {
			return err
		}
		_, _, err = e.upload(ctx, in, up)
		return err
	}
	service := api.New(in.Ports, in.Deployment, in.Profile)
	if err := checkNotInUse(ctx, service, up.key); err != nil {
		return err
	}
	id, key, err := e.upload(ctx, in, up)
	if err != nil || !wait {
		return err
	}
	return e.follow(ctx, in, service, id, key)
}

// dryRunSubmit checks what submit would upload, and uploads nothing.
func (e *Env) dryRunSubmit(
	c *cobra.Command, location installation.Location, file, configPath string, settings []string, asJSON bool,
) (err error) {
	in, err := e.openWith(c, location, installation.Options{AllowUninitialized: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	up, err := checkUpload(c.Context(), in, file, configPath, settings)
	if err != nil {
		return err
	}
	if err := e.sayConfig(in, up); err != nil {
		return err
	}
	run, err := up.runConfig(in)
	if err != nil {
		return err
	}
	d := dryRun{Env: e, run: run, files: []string{file}, asJSON: asJSON}
	if run.Kind == config.KindTrain {
		return d.training(c.Context())
	}
	if d.engine, err = engineOf(in.Deployment, &d.run); err != nil {
		return err
	}
	if d.servers, err = e.askServers(c.Context(), in, d.run); err != nil {
		return err
	}
	if run.Kind == config.KindRollout {
		return d.rollout(c.Context(), in)
	}
	if run.Kind == config.KindTrials {
		return d.trials(c.Context(), in)
	}
	if err := checkGraders(in.Deployment, d.run); err != nil {
		return err
	}
	return d.prompts(c.Context())
}

// sayConfig names the config if it is not one that the user has at hand.
func (e *Env) sayConfig(in *installation.Installation, up upload) error {
	if at := up.fromBucket(in); at != "" {
		return e.say("config: %s (in the bucket; --config FILE takes another one)", at)
	}
	return nil
}

// engineOf returns the engine of the pool that takes the run, and completes the run's model, as submitting it does.
// Without pools in the config, which `up` then makes of what its engine serves, it is that of the installation.
func engineOf(d config.Deployment, run *config.Run) (config.Engine, error) {
	if len(d.InferPools()) == 0 {
		return d.Engine, nil
	}
	pool, revision, err := kind.Serving(d, run.Model)
	if err != nil {
		return config.Engine{}, err
	}
	run.Model.URI, run.Model.Revision = pool.Model, revision
	return d.ForPool(pool.Name).Engine, nil
}

// upload copies the config and then the prompts into the bucket, and prints the run's id. If the object of that name is
// not a run yet, it takes another name: replaced, that object would never become one. A part takes another name as well
// if anything has its name: what is there is the user's.
func (e *Env) upload(ctx context.Context, in *installation.Installation, up upload) (identity.RunID, string, error) {
	for number := 1; ; {
		named := up.numbered(number)
		options, taken, err := placeFor(ctx, in, named)
		if err != nil {
			return "", "", err
		}
		if taken || number > 1 && !options.CreateOnly {
			number++
			continue
		}
		info, err := e.store(ctx, in, named, options)
		switch {
		case fault.Is(err, fault.Conflict): // another submission was faster
			continue
		case err != nil:
			return "", "", err
		case number > 1:
			format := "%s is not a run yet: this one is %s"
			if up.part {
				format = "%s is in use: this part is %s"
			}
			if err := e.say(format, up.key, named.key); err != nil {
				return "", "", err
			}
		}
		id := identity.UploadRun(in.Deployment.Bucket, named.key, info.Version)
		_, err = fmt.Fprintln(e.Out, id)
		return id, named.key, err
	}
}

// placeFor returns the conditions under which the upload may be put at its key: the key is free, or its object is the
// input of a run. taken is true if its object is yet to become a run, or if a part would replace anything.
func placeFor(
	ctx context.Context, in *installation.Installation, up upload,
) (o blob.PutOptions, taken bool, err error) {
	if up.part {
		taken, err = isTaken(ctx, in.Ports.Blobs, append(input.Twins(up.key), up.key, up.configKey))
		return blob.PutOptions{CreateOnly: true}, taken, err
	}
	key := up.key
	info, err := in.Ports.Blobs.Stat(ctx, key, "")
	switch {
	case fault.Is(err, fault.NotFound):
		return blob.PutOptions{CreateOnly: true}, false, nil
	case err != nil:
		return o, false, err
	case in.Uninitialized:
		return o, true, nil
	}
	_, err = host.LoadUpload(ctx, in.Ports.Docs, identity.UploadRun(in.Deployment.Bucket, key, info.Version))
	switch {
	case host.IsExpired(err): // it was the input of a run
		err = nil
	case fault.Is(err, fault.NotFound):
		return o, true, nil
	}
	return blob.PutOptions{IfVersion: info.Version}, false, err
}

// isTaken reports whether one of the objects exists.
func isTaken(ctx context.Context, blobs blob.Store, keys []string) (bool, error) {
	for _, key := range keys {
		_, err := blobs.Stat(ctx, key, "")
		if !fault.Is(err, fault.NotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

func (e *Env) store(
	ctx context.Context, in *installation.Installation, up upload, o blob.PutOptions,
) (blob.Info, error) {
	if err := up.putConfig(ctx, in); err != nil {
		return blob.Info{}, err
	}
	var transfer *progress.Transfer
	defer func() { transfer.Close() }()
	return in.Store(ctx, installation.File{Path: up.file, Key: up.key, Options: o,
		Through: func(r io.Reader, size int64) io.Reader {
			transfer = e.transfer(e.Err, up.file, size)
			return transfer.Reader(r)
		}})
}

// checkNotInUse is a Conflict if an open run still reads the object, which an upload would replace.
func checkNotInUse(ctx context.Context, service *api.Service, key string) error {
	runs, err := service.Open(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		for _, in := range r.Inputs {
			if in == key && !r.Phase.Ended() {
				return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s still reads %s", r.Run, key),
					Remedy: "wait for its end, stop it, or rename the file"}
			}
		}
	}
	return nil
}

// eventPatience is how long to wait for the event of a cloud's bucket.
const eventPatience = 30 * time.Second

// follow shows the run until it has ended, and then its summary.
func (e *Env) follow(
	ctx context.Context, in *installation.Installation, service *api.Service, id identity.RunID, key string,
) error {
	s, err := e.followToEnd(ctx, in, service, id, key)
	if err != nil {
		return err
	}
	return progress.OutcomeOfInstalled(s, in.Path)
}

// followToEnd shows the run until it has ended, and then its summary. It returns how the run ended.
func (e *Env) followToEnd(
	ctx context.Context, in *installation.Installation, service *api.Service, id identity.RunID, key string,
) (status.Status, error) {
	f := progress.Follower{Source: service, Clock: e.Clock, Every: in.Poll, View: e.view(in.Location)}
	if in.Cloud != "" && key != "" {
		f.Patience = eventPatience
		f.OnNotStarted = func(ctx context.Context) string { return resendUpload(ctx, service, key) }
	}
	s, err := f.Follow(ctx, id)
	if err != nil {
		return s, err
	}
	if err := progress.WriteSummary(ctx, e.Err, s, in.Ports.Blobs, in.Path); err != nil {
		return s, err
	}
	if in.Cloud == "" {
		err = progress.WriteKept(ctx, e.Err, s, in.Ports, keepsWork(in.Deployment))
	}
	return s, err
}

// keepsWork reports whether the config keeps all work files of ended runs.
func keepsWork(d config.Deployment) bool { return d.Storage.KeepWork == config.KeepWorkAll }

// view returns a view of runs of the installation at the location.
func (e *Env) view(at installation.Location) progress.View {
	return locatedView{View: progress.NewView(e.Err, e.Clock, e.palette(e.Err)), location: at}
}

// locatedView completes the commands in notes, so that users can copy them.
type locatedView struct {
	progress.View
	location installation.Location
}

// Note implements progress.View.
func (v locatedView) Note(text string) { v.View.Note(withLocationFlags(text, v.location)) }

// resendUpload announces an object whose event is late to the functions, and returns a note about it. The run has the
// same id either way.
func resendUpload(ctx context.Context, service *api.Service, key string) string {
	const late = "the bucket's event has not started the run yet"
	if _, err := service.Submit(ctx, key); err != nil {
		return late + ", and sending the event again failed: " + err.Error()
	}
	return late + ": the event was sent again"
}
