package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/scripts/rollout/progress"
	"rollout/shared/blob"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

func cleanCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "clean",
		Short: "Delete the work files of runs that have ended",
		Long:  "Deletes work/<run>/ of every run that has ended. Inputs (prompts/) and what runs wrote (runs/) stay, and so does every run that goes on.",
		Args:  arguments(0),
	}
	dir := dirFlag(c)
	dry := c.Flags().Bool("dry-run", false, "only say what would be deleted")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		l, closeAll, err := e.open(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		runs, err := api.New(l.Ports, l.Deployment).List(c.Context())
		if err != nil {
			return err
		}
		return clean(c.Context(), e.Out, l.Bucket, runs, *dry)
	}
	return c
}

// clean deletes the work of those runs that have ended, and says what it
// freed.
func clean(ctx context.Context, w io.Writer, bucket blob.Store, runs []api.Status, dry bool) error {
	did := "freed"
	if dry {
		did = "would free"
	}
	var total freed
	for _, r := range runs {
		if !r.Phase.Ended() {
			continue
		}
		f, err := cleanRun(ctx, bucket, r.Run, dry)
		if err != nil {
			return fault.Wrap(err, "clean run %s", r.Run)
		}
		if f.objects == 0 {
			continue
		}
		total.add(f)
		if _, err := fmt.Fprintf(w, "%s  %s  %s %s\n", r.Run, progress.Plain(r.Name, nameColumns), did, f); err != nil {
			return err
		}
	}
	if total.objects == 0 {
		did = "nothing to clean: " + did
	}
	_, err := fmt.Fprintf(w, "%s %s\n", did, total)
	return err
}

type freed struct {
	objects int
	bytes   int64
}

func (f *freed) add(g freed) { f.objects, f.bytes = f.objects+g.objects, f.bytes+g.bytes }

func (f freed) String() string {
	return fmt.Sprintf("%s in %s objects", humanize.IBytes(uint64(f.bytes)), humanize.Comma(int64(f.objects)))
}

// cleanRun deletes the objects under work/<run>/, a page at a time.
func cleanRun(ctx context.Context, bucket blob.Store, id identity.RunID, dry bool) (freed, error) {
	const page = 1000
	prefix := record.WorkDir + string(id) + "/"
	var f freed
	for after := ""; ; {
		objects, err := bucket.List(ctx, prefix, after, page)
		if err != nil {
			return f, err
		}
		for _, o := range objects {
			after = o.Key
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
