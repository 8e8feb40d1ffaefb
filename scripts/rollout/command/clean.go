package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/record"
)

func cleanCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "clean [RUN]...",
		Short: "Delete what ended runs keep in work/, or show what they take of the disk (--dry-run)",
		Long: "Deletes work/RUN/ of ended runs, and unfinished uploads in pending/ that are older than a day. That is the\n" +
			"index which `rollout retry` reads, so such a run can't be retried any more. Runs with items that failed or\n" +
			"have no answer are therefore kept, unless they are named or --all is set.\n\n" +
			"It keeps inputs (prompts/), results (runs/), snapshots and everything of open runs and of those that kept\n" +
			"ones retry, and says how much that is.\n\n" + runHelp,
	}
	dir := dirFlag(c)
	var o cleanOptions
	c.Flags().BoolVar(&o.dry, "dry-run", false, "only show what would be deleted")
	c.Flags().BoolVar(&o.all, "all", false, "also runs with items that failed or have no answer")
	c.Flags().BoolVar(&o.json, "json", false, "print a JSON object")
	older := c.Flags().String("older-than", "", "only runs that ended that long ago: a `duration` (7d, 36h)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if o.olderThan, err = parseDays(cmp.Or(*older, "0s")); err != nil {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("--older-than %.40q is not a duration", *older),
				Remedy: "use a duration like 7d or 36h"}
		}
		if len(args) > 0 && (o.all || *older != "") {
			return usage(c, "--all and --older-than choose among all runs: leave them out, or the names")
		}
		l, closeAll, err := e.openLocal(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		service := api.New(l.Ports, l.Deployment, cloud.OneMachine())
		for _, name := range args {
			r, err := findRun(c.Context(), service, name)
			if err != nil {
				return err
			}
			if !r.Phase.Ended() {
				return &fault.Error{Kind: fault.Conflict,
					Err:    fmt.Errorf("run %s has not ended: it is %s", r.Run, progress.FormatPhase(r.Phase)),
					Remedy: fmt.Sprintf("wait for it, or `rollout stop %s`", r.Run)}
			}
			o.named = append(o.named, r.Run)
		}
		runs, err := service.List(c.Context())
		if err != nil {
			return err
		}
		out, err := e.clean(c.Context(), l, runs, o)
		if err != nil {
			return err
		}
		if o.json {
			return writeJSON(e.Out, out)
		}
		_, err = e.Out.Write([]byte(out.text()))
		return err
	}
	return c
}

// cleanOptions choose what clean deletes.
type cleanOptions struct {
	dry, all, json bool
	olderThan      time.Duration
	named          []identity.RunID // these alone; empty: all
}

// why returns why the options keep an ended run; "" if they do not.
func (o cleanOptions) why(r status.Status, now time.Time) string {
	switch {
	case len(o.named) > 0 && !slices.Contains(o.named, r.Run):
		return keptUnnamed
	case len(o.named) > 0:
		return ""
	case now.Sub(r.Ended()) < o.olderThan:
		return keptYoung
	case !o.all && r.Items.Failed > 0 && cmp.Or(r.Kind, config.KindBatch) == config.KindBatch:
		return keptUnanswered
	}
	return ""
}

// abandonedAfter is the age at which an unfinished upload in pending/ counts as abandoned.
const abandonedAfter = 24 * time.Hour

// clean deletes the work files of ended runs and abandoned uploads, and adds up what it freed and kept.
func (e *Env) clean(
	ctx context.Context, l *installation.Local, runs []status.Status, o cleanOptions,
) (out cleaned, err error) {
	out.DryRun, out.Runs = o.dry, []cleanedRun{}
	now := e.Clock.Now()
	needed, err := o.ancestorsOfKept(ctx, l.Bucket, runs, now)
	if err != nil {
		return out, err
	}
	for _, id := range o.named { // before anything is deleted
		if child := needed[id]; child != "" {
			return out, &fault.Error{Kind: fault.Conflict,
				Err:    fmt.Errorf("run %s retries run %s and reads its files", child, id),
				Remedy: "name both once both have ended"}
		}
	}
	for _, r := range runs {
		if !r.Phase.Ended() || len(o.named) > 0 && !slices.Contains(o.named, r.Run) {
			continue
		}
		c := cleanedRun{Run: r.Run, Name: r.Name, Failed: r.Items.AtFault(), Unanswered: r.Items.Unanswered,
			Kept: o.why(r, now)}
		if needed[r.Run] != "" {
			c.Kept = keptByChild
		}
		c.freed, err = cleanUnder(ctx, l.Bucket, record.WorkPrefix+string(r.Run)+"/", time.Time{}, o.dry || c.Kept != "")
		if err != nil {
			return out, fault.Wrap(err, "clean run %s", r.Run)
		}
		if c.Objects == 0 {
			continue
		}
		out.Runs = append(out.Runs, c)
		if c.Kept == "" {
			out.Freed.add(c.freed)
		}
	}
	if len(o.named) == 0 {
		out.Uploads, err = cleanUnder(ctx, l.Bucket, record.PendingPrefix, now.Add(-abandonedAfter), o.dry)
		if err != nil {
			return out, fault.Wrap(err, "clean unfinished uploads")
		}
		out.Freed.add(out.Uploads)
	}
	return out, out.addUpKept(ctx, l)
}

// ancestorsOfKept returns, for each run whose work files a kept descendant reads, one such descendant: one that is open
// or, as it could be retried, one that has ended and still has its own work files.
func (o cleanOptions) ancestorsOfKept(
	ctx context.Context, bucket blob.Store, runs []status.Status, now time.Time,
) (map[identity.RunID]identity.RunID, error) {
	parents := map[identity.RunID]identity.RunID{}
	for _, r := range runs {
		if r.Parent != nil {
			parents[r.Run] = r.Parent.Run
		}
	}
	needed := map[identity.RunID]identity.RunID{}
	for _, r := range runs {
		if parents[r.Run] == "" || r.Phase.Ended() && o.why(r, now) == "" {
			continue
		}
		if r.Phase.Ended() {
			own, err := bucket.List(ctx, record.WorkPrefix+string(r.Run)+"/", "", 1)
			if err != nil {
				return nil, fault.Wrap(err, "look for the work files of run %s", r.Run)
			}
			if len(own) == 0 {
				continue
			}
		}
		for id := parents[r.Run]; id != "" && needed[id] == ""; id = parents[id] {
			needed[id] = r.Run
		}
	}
	return needed, nil
}

// cleanUnder deletes the objects with the prefix, one page after the other; if dry, it only counts them. If before is
// not zero, it passes over objects written since.
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
