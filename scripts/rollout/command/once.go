package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/standalone"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// untilEnded follows every run that is not over yet, one after the other, and
// stops the stack when none is left. Runs that had ended before are not its
// affair.
func (e *Env) untilEnded(ctx context.Context, p *prepared, s *standalone.Runtime, leave <-chan string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a signal, or workers that are all gone, end the following
		select {
		case <-leave:
		case <-s.Ended():
		case <-ctx.Done():
		}
		cancel()
	}()
	o := onceRunner{env: e, prepared: p, service: api.New(p.Ports, p.deployment, cloud.OneMachine()), seen: map[identity.RunID]bool{}}
	err := o.follow(ctx)
	if stopErr := s.Stop(); stopErr != nil { // it says why there is no worker
		return stopErr
	}
	return interrupted(err)
}

// interrupted says what an interrupt means where runs end with the process
// that follows them.
func interrupted(err error) error {
	if !fault.Is(err, fault.Canceled) {
		return err
	}
	return &fault.Error{Kind: fault.Canceled, Err: errors.New("interrupted; what is finished is kept"),
		Remedy: "start the same command again to go on"}
}

// onceRunner is one `up --once`.
type onceRunner struct {
	env      *Env
	prepared *prepared
	service  *api.Service
	seen     map[identity.RunID]bool // followed to their end, or over before
	followed int
	failed   []error
}

func (o *onceRunner) follow(ctx context.Context) error {
	if err := o.forgetEnded(ctx); err != nil {
		return err
	}
	for {
		open, waiting, err := o.open(ctx)
		if err != nil {
			return err
		}
		for _, s := range open {
			if err := o.one(ctx, s, len(open) > manyRuns); err != nil {
				return err
			}
		}
		switch {
		case len(open) > 0: // meanwhile there may be more
		case !waiting:
			return o.outcome()
		default:
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, ctx.Err(), "wait for the runs to begin")
			}
		}
	}
}

// forgetEnded leaves out what was over before this process began.
func (o *onceRunner) forgetEnded(ctx context.Context) error {
	all, err := o.service.List(ctx)
	for _, s := range all {
		if s.Phase.Ended() {
			o.seen[s.Run] = true
		}
	}
	return err
}

// open returns the runs to follow, the oldest first; waiting says that there
// are none and that an upload is not a run yet.
func (o *onceRunner) open(ctx context.Context) (open []status.Status, waiting bool, err error) {
	all, err := o.service.List(ctx)
	if err != nil {
		return nil, false, err
	}
	known := map[identity.RunID]bool{}
	for _, s := range slices.Backward(all) { // the newest comes first
		known[s.Run] = true
		if !o.seen[s.Run] {
			open = append(open, s)
		}
	}
	if len(open) > 0 {
		return open, false, nil
	}
	waiting, err = o.uploads(ctx, known)
	return nil, waiting, err
}

// uploads reports whether the bucket holds prompts that are no run yet.
func (o *onceRunner) uploads(ctx context.Context, known map[identity.RunID]bool) (bool, error) {
	after := ""
	for {
		infos, err := o.prepared.Bucket.List(ctx, record.PromptsPrefix, after, blob.MaxList)
		if err != nil {
			return false, err
		}
		for _, info := range infos {
			after = info.Key
			if input.IsPromptsKey(info.Key) &&
				!known[identity.UploadRun(o.prepared.deployment.Bucket, info.Key, info.Version)] {
				return true, nil
			}
		}
		if len(infos) < blob.MaxList {
			return false, nil
		}
	}
}

// manyRuns is how many open runs are too many for a closing screen each.
const manyRuns = 8

// one follows a run to its end and says what came of it.
func (o *onceRunner) one(ctx context.Context, s status.Status, brief bool) (err error) {
	if !s.Phase.Ended() {
		s, err = progress.Follower{Source: o.service, View: progress.NewView(o.env.Err, o.env.Clock), Clock: o.env.Clock}.Follow(ctx, s.Run)
		if err != nil {
			return err
		}
	}
	o.seen[s.Run] = true
	o.followed++
	path := progress.ObjectPathIn(installation.BucketDir(o.prepared.Dir))
	if err := progress.Outcome(s, path); err != nil {
		o.failed = append(o.failed, err)
	}
	if brief {
		_, err = io.WriteString(o.env.Err, progress.Headline(s))
		return err
	}
	return progress.WriteSummary(ctx, o.env.Err, s, o.prepared.Bucket, path)
}

// maxFailedShown bounds how many runs that did not end well are told one by one.
const maxFailedShown = 10

// outcome is the error of those runs that did not end well.
func (o *onceRunner) outcome() error {
	if o.followed == 0 {
		_, err := fmt.Fprintf(o.env.Err, "nothing to answer: no prompts file in %s is new (.jsonl, .jsonl.gz, .jsonl.zst)\n",
			filepath.Join(installation.BucketDir(o.prepared.Dir), record.PromptsPrefix))
		return err
	}
	if n := len(o.failed); n > maxFailedShown {
		return fmt.Errorf("%w\nand %d more runs did not end well: see `rollout status`", errors.Join(o.failed[:maxFailedShown]...), n-maxFailedShown)
	}
	return errors.Join(o.failed...)
}
