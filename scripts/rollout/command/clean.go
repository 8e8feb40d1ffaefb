package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/record"
)

func cleanCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "clean",
		Short: "Delete the work files of ended runs, or show what they take of the disk (--dry-run)",
		Long: "Deletes work/RUN/ of every ended run, and unfinished uploads in pending/ that are older than a day. It\n" +
			"keeps inputs (prompts/), results (runs/), snapshots and everything of open runs and of those that they retry.\n" +
			"A run without its work files can't be retried.",
		Args: arguments(0),
	}
	dir := dirFlag(c)
	dry := c.Flags().Bool("dry-run", false, "only show what would be deleted")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		l, closeAll, err := e.openLocal(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		runs, err := api.New(l.Ports, l.Deployment, cloud.OneMachine()).List(c.Context())
		if err != nil {
			return err
		}
		return e.clean(c.Context(), l.Bucket, runs, *dry)
	}
	return c
}

// abandonedAfter is the age at which an unfinished upload in pending/ counts as abandoned.
const abandonedAfter = 24 * time.Hour

// clean deletes the work files of ended runs and abandoned uploads, and prints what it freed.
func (e *Env) clean(ctx context.Context, bucket blob.Store, runs []status.Status, dry bool) error {
	did := "freed"
	if dry {
		did = "would free"
	}
	var total freed
	needed := ancestorsOfOpen(runs)
	for _, r := range runs {
		if !r.Phase.Ended() || needed[r.Run] {
			continue
		}
		f, err := cleanUnder(ctx, bucket, record.WorkPrefix+string(r.Run)+"/", time.Time{}, dry)
		if err != nil {
			return fault.Wrap(err, "clean run %s", r.Run)
		}
		if f.objects == 0 {
			continue
		}
		total.add(f)
		name := progress.SanitizeLine(r.Name, nameColumns)
		if _, err := fmt.Fprintf(e.Out, "%s  %s  %s %s\n", r.Run, name, did, f); err != nil {
			return err
		}
	}
	uploads, err := cleanUnder(ctx, bucket, record.PendingPrefix, e.Clock.Now().Add(-abandonedAfter), dry)
	if err != nil {
		return fault.Wrap(err, "clean unfinished uploads")
	}
	if uploads.objects > 0 {
		total.add(uploads)
		if _, err := fmt.Fprintf(e.Out, "unfinished uploads  %s %s\n", did, uploads); err != nil {
			return err
		}
	}
	if total.objects == 0 {
		did = "nothing to clean: " + did
	}
	_, err = fmt.Fprintf(e.Out, "%s %s\n", did, total)
	return err
}

// ancestorsOfOpen returns the runs whose work files an open child of them reads.
func ancestorsOfOpen(runs []status.Status) map[identity.RunID]bool {
	parents := map[identity.RunID]identity.RunID{}
	for _, r := range runs {
		if r.Parent != nil {
			parents[r.Run] = r.Parent.Run
		}
	}
	needed := map[identity.RunID]bool{}
	for _, r := range runs {
		for id := parents[r.Run]; id != "" && !r.Phase.Ended() && !needed[id]; id = parents[id] {
			needed[id] = true
		}
	}
	return needed
}

// freed is what was, or would be, deleted.
type freed struct {
	objects int
	bytes   int64
}

func (f *freed) add(g freed) { f.objects, f.bytes = f.objects+g.objects, f.bytes+g.bytes }

func (f freed) String() string {
	return humanize.IBytes(uint64(f.bytes)) + " in " + figures.Of(f.objects, "object")
}

// cleanUnder deletes the objects with the prefix, one page after the other. If before is not zero, it keeps objects
// written since.
func cleanUnder(ctx context.Context, bucket blob.Store, prefix string, before time.Time, dry bool) (freed, error) {
	const page = 1000
	var f freed
	for after := ""; ; {
		objects, err := bucket.List(ctx, prefix, after, page)
		if err != nil {
			return f, err
		}
		for _, o := range objects {
			after = o.Key
			if !before.IsZero() && !o.ModTime.Before(before) {
				continue
			}
			if !dry {
				if err := bucket.Delete(ctx, o.Key, ""); err != nil {
					return f, err
				}
			}
			f.add(freed{1, o.Size})
		}
		if len(objects) < page {
			return f, nil
		}
	}
}
