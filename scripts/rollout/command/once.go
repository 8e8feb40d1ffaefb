package command

import (
	"context"
	"errors"
	"strings"
	"time"

	"rollout/functions/api"
	"rollout/gpuworker/cli"
	"rollout/gpuworker/executors/infer"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/stack"
	"rollout/shared/blob"
	"rollout/shared/embedded/local"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// onItem returns what writes events of items to standard output, if wanted.
func (e *Env) onItem(ctx context.Context, wanted bool) func(infer.Item) {
	return cli.Emit(ctx, wanted, e.Out, e.Clock)
}

// untilEnded follows every run that is not over yet, one after the other, and
// stops the stack when none is left. Runs that had ended before are not its
// affair.
func (e *Env) untilEnded(ctx context.Context, p *prepared, s *stack.Stack, leave <-chan string) error {
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
	o := once{env: e, prepared: p, service: api.New(p.Ports, p.deployment), seen: map[identity.RunID]bool{}}
	err := o.follow(ctx)
	if stopErr := s.Stop(); stopErr != nil { // it says why there is no worker
		return stopErr
	}
	return err
}

// once is one `up --once`.
type once struct {
	env      *Env
	prepared *prepared
	service  *api.Service
	seen     map[identity.RunID]bool // followed to their end, or over before
	outcome  error
}

func (o *once) follow(ctx context.Context) error {
	if err := o.forgetEnded(ctx); err != nil {
		return err
	}
	for {
		next, waiting, err := o.next(ctx)
		switch {
		case err != nil:
			return err
		case next != "":
			if err := o.one(ctx, next); err != nil {
				return err
			}
		case !waiting:
			return o.outcome
		default:
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return fault.As(fault.Canceled, ctx.Err(), "wait for the runs to begin")
			}
		}
	}
}

// forgetEnded leaves out what was over before this process began.
func (o *once) forgetEnded(ctx context.Context) error {
	all, err := o.service.List(ctx)
	for _, s := range all {
		if s.Phase.Ended() {
			o.seen[s.Run] = true
		}
	}
	return err
}

// next returns the oldest run to follow; waiting says that an upload is not a
// run yet.
func (o *once) next(ctx context.Context) (id identity.RunID, waiting bool, err error) {
	all, err := o.service.List(ctx)
	if err != nil {
		return "", false, err
	}
	known := map[identity.RunID]bool{}
	for _, s := range all { // the newest comes first
		known[s.Run] = true
		if !o.seen[s.Run] {
			id = s.Run
		}
	}
	if id != "" {
		return id, false, nil
	}
	waiting, err = o.uploads(ctx, known)
	return "", waiting, err
}

// uploads reports whether the bucket holds prompts that are no run yet.
func (o *once) uploads(ctx context.Context, known map[identity.RunID]bool) (bool, error) {
	after := ""
	for {
		infos, err := o.prepared.Bucket.List(ctx, record.Prompts, after, blob.MaxList)
		if err != nil {
			return false, err
		}
		for _, info := range infos {
			after = info.Key
			if _, ok := input.Packing(info.Key); ok && !strings.Contains(info.Key, "/.") &&
				!known[identity.UploadRun(o.prepared.deployment.Bucket, info.Key, info.Version)] {
				return true, nil
			}
		}
		if len(infos) < blob.MaxList {
			return false, nil
		}
	}
}

// one follows a run to its end and says what came of it.
func (o *once) one(ctx context.Context, id identity.RunID) error {
	status, err := progress.Follow(ctx, o.service, id, progress.NewView(o.env.Err, o.env.Clock), o.env.Clock)
	if err != nil {
		return err
	}
	o.seen[id] = true
	if err := progress.Closing(ctx, o.env.Err, status, o.prepared.Bucket, progress.Under(local.BucketDir(o.prepared.Dir))); err != nil {
		return err
	}
	o.outcome = errors.Join(o.outcome, progress.Outcome(status))
	return nil
}
