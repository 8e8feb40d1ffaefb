package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/standalone"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// untilEnded follows every open run, one after the other, and stops the product when all have ended or are paused. It
// ignores runs that had ended before.
func (e *Env) untilEnded(ctx context.Context, p *prepared, r *standalone.Runtime, shutdown <-chan string) error {
	ctx, cancel := cancelOnShutdown(ctx, r, shutdown)
	defer cancel()
	service := api.New(p.Ports, p.deployment, cloud.OneMachine())
	o := onceRunner{env: e, prepared: p, service: service, began: e.Clock.Now(),
		seen: map[identity.RunID]bool{}, known: map[identity.RunID]bool{}}
	err := o.follow(ctx)
	if stopErr := r.Stop(); stopErr != nil { // why the workers ended, if they did
		return stopErr
	}
	return interrupted(err)
}

// cancelOnShutdown returns a context that ends on a signal, and when all workers have ended.
func cancelOnShutdown(
	ctx context.Context, r *standalone.Runtime, shutdown <-chan string,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-shutdown:
		case <-r.Ended():
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// interrupted replaces a cancellation by an error that says how to continue. It is for commands that run the product
// themselves.
func interrupted(err error) error {
	if !fault.Is(err, fault.Canceled) {
		return err
	}
	return &fault.Error{Kind: fault.Canceled, Err: errors.New("interrupted; finished items are kept"),
		Remedy: "start the same command again to continue"}
}

// onceRunner is one execution of `up --once`.
type onceRunner struct {
	env      *Env
	prepared *prepared
	service  *api.Service
	began    time.Time
	seen     map[identity.RunID]bool // runs that were followed to their end or a pause, or had ended before
	known    map[identity.RunID]bool // uploads that are runs
	followed int
	waited   int     // consecutive looks that found no run, and files that are to become some
	failed   []error // outcomes of runs that did not succeed
}

// onceInterval is how often --once looks for new runs.
const onceInterval = 100 * time.Millisecond

func (o *onceRunner) follow(ctx context.Context) error {
	if err := o.ignoreEnded(ctx); err != nil {
		return err
	}
	for {
		open, waiting, err := o.open(ctx)
		if err != nil {
			return err
		}
		for _, s := range open {
			if err := o.followRun(ctx, s, len(open) > manyRuns); err != nil {
				return err
			}
		}
		if len(open) > 0 || !waiting {
			o.waited = 0
		}
		switch {
		case len(open) > 0: // look again: more runs may have started meanwhile
		case !waiting:
			if err := o.noteUploads(ctx); err != nil {
				return err
			}
			return o.outcome()
		default:
			if err := o.noteWaiting(ctx); err != nil {
				return err
			}
			select {
			case <-time.After(onceInterval):
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, ctx.Err(), "wait for the runs to start")
			}
		}
	}
}

// longWait is how many looks find a file that is not a run yet before --once says what it waits for.
const longWait = 30

// noteWaiting prints once why files are not runs yet, if that takes long: a program may still write them.
func (o *onceRunner) noteWaiting(ctx context.Context) error {
	if o.waited++; o.waited != longWait {
		return nil
	}
	all, err := o.service.Overview(ctx, status.Page{Since: o.began})
	if err != nil {
		return err
	}
	for _, u := range all.Uploads {
		if !input.IsPromptsKey(u.Key) {
			continue
		}
		line := progress.SanitizeLine("waiting for "+u.Key+": "+u.Why, 500)
		if _, err := fmt.Fprintln(o.env.Err, line); err != nil {
			return err
		}
	}
	return nil
}

// runs returns the open runs and those that ended since this process started, the newest first.
func (o *onceRunner) runs(ctx context.Context) ([]status.Status, error) {
	r, err := o.service.Runs(ctx, status.Page{Since: o.began})
	return r.Runs, err
}

// ignoreEnded marks runs that had ended before this process started, and are still in the index of open runs.
func (o *onceRunner) ignoreEnded(ctx context.Context) error {
	all, err := o.runs(ctx)
	for _, s := range all {
		if s.Phase.Ended() {
			o.seen[s.Run] = true
		}
	}
	return err
}

// open returns the runs to follow, oldest first. If there are none, waiting reports whether an upload, or a task such
// as a requested retry, has yet to become a run.
func (o *onceRunner) open(ctx context.Context) (open []status.Status, waiting bool, err error) {
	hasTask, err := o.hasTask(ctx) // first: a task ends after its run is listed
	if err != nil {
		return nil, false, err
	}
	all, err := o.runs(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, s := range slices.Backward(all) {
		if !o.seen[s.Run] {
			open = append(open, s)
		}
	}
	if len(open) > 0 {
		return open, false, nil
	}
	waiting, err = o.hasNewUpload(ctx)
	return nil, waiting || hasTask, err
}

// hasTask reports whether a task waits or is in progress.
func (o *onceRunner) hasTask(ctx context.Context) (bool, error) {
	q, ok := o.prepared.Ports.Queues.(queue.Depther)
	if !ok {
		return false, nil
	}
	visible, hidden, err := q.Depth(ctx, host.TaskQueue)
	return visible+hidden > 0, err
}

// hasNewUpload reports whether the bucket holds a prompts file that is not a run. It asks once for each that is one.
func (o *onceRunner) hasNewUpload(ctx context.Context) (bool, error) {
	after := ""
	for {
		infos, err := o.prepared.Bucket.List(ctx, record.PromptsPrefix, after, blob.MaxList)
		if err != nil {
			return false, err
		}
		var unknown []identity.RunID
		for _, info := range infos {
			after = info.Key
			upload := identity.UploadRun(o.prepared.deployment.Bucket, info.Key, info.Version)
			if input.IsPromptsKey(info.Key) && !o.known[upload] {
				unknown = append(unknown, upload)
			}
		}
		found, err := o.service.KnownUploads(ctx, unknown)
		if err != nil || len(found) < len(unknown) {
			return true, err
		}
		maps.Copy(o.known, found)
		if len(infos) < blob.MaxList {
			return false, nil
		}
	}
}

// manyRuns is the largest number of open runs of which each gets a full summary.
const manyRuns = 8

// followRun follows a run to its end and prints its summary, or only a headline if brief is set.
func (o *onceRunner) followRun(ctx context.Context, s status.Status, brief bool) (err error) {
	if !s.Phase.Ended() {
		f := progress.Follower{
			Source: o.service, View: o.env.view(installation.Location{Dir: o.prepared.Dir}), Clock: o.env.Clock,
			UntilPaused: true,
		}
		if s, err = f.Follow(ctx, s.Run); err != nil {
			return err
		}
	}
	o.seen[s.Run] = true
	o.followed++
	path := progress.ObjectPathIn(installation.BucketDir(o.prepared.Dir))
	if err := progress.OutcomeOfInstalled(s, path); err != nil {
		o.failed = append(o.failed, err)
	}
	if !s.Phase.Ended() { // it is paused
		return nil
	}
	if brief {
		_, err = io.WriteString(o.env.Err, progress.Headline(s, terminal.Columns(o.env.Err)))
		return err
	}
	if err := progress.WriteSummary(ctx, o.env.Err, s, o.prepared.Bucket, path); err != nil {
		return err
	}
	return progress.WriteKept(ctx, o.env.Err, s, o.prepared.Ports, keepsWork(o.prepared.deployment))
}

// noteUploads prints why files among the prompts are not runs. Those that are named like prompts files count as
// failures.
func (o *onceRunner) noteUploads(ctx context.Context) error {
	all, err := o.service.Overview(ctx, status.Page{Since: o.began})
	if err != nil {
		return err
	}
	for _, u := range all.Uploads {
		why := fmt.Errorf("%s: %s", progress.SanitizeLine(u.Key, 200), progress.SanitizeLine(u.Why, 500))
		if input.IsPromptsKey(u.Key) {
			o.failed = append(o.failed, why)
		} else if err := o.env.say("%s", why); err != nil {
			return err
		}
	}
	return nil
}

// maxFailedShown limits the unsuccessful runs that the error names one by one.
const maxFailedShown = 10

// outcome returns the error of all runs that did not succeed.
func (o *onceRunner) outcome() error {
	if o.followed == 0 && len(o.failed) == 0 {
		return o.env.say("nothing to answer: no new prompts file (.jsonl, .jsonl.gz, .jsonl.zst) is in %s",
			filepath.Join(installation.BucketDir(o.prepared.Dir), record.PromptsPrefix))
	}
	if n := len(o.failed); n > maxFailedShown {
		return fmt.Errorf("%w\n%d more did not succeed: see `rollout status`",
			errors.Join(o.failed[:maxFailedShown]...), n-maxFailedShown)
	}
	return errors.Join(o.failed...)
}
