package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"rollout/scripts/rollout/progress"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// cleaned is what clean deleted, or would delete, and what it kept: `clean --json` prints it.
type cleaned struct {
	DryRun bool         `json:"dry_run"`
	Runs   []cleanedRun `json:"runs"` // those with something in work/
	// Uploads are abandoned ones.
	Uploads freed `json:"uploads"`
	Freed   freed `json:"freed"` // of runs and uploads
	Kept    struct {
		Runs    int64 `json:"runs_bytes"`    // in runs/
		Prompts int64 `json:"prompts_bytes"` // in prompts/
		Work    int64 `json:"work_bytes"`    // in work/
		State   int64 `json:"state_bytes"`
	} `json:"kept"`
}

// cleanedRun is what an ended run has in work/.
type cleanedRun struct {
	Run  identity.RunID `json:"run_id"`
	Name string         `json:"name"`
	freed
	// Failed and Unanswered are the items that can't be asked again without it.
	Failed     uint64 `json:"failed"`
	Unanswered uint64 `json:"unanswered"`
	// Kept is why it is not deleted: "unanswered", "retried" or "young"; "" if it is.
	Kept string `json:"kept,omitempty"`
}

// The reasons for which an ended run is kept.
const (
	keptUnanswered = "unanswered" // items of it can be asked again
	keptByChild    = "retried"    // a run that is kept retries it
	keptYoung      = "young"      // it ended too short ago
	keptUnnamed    = "unnamed"    // others are named; the output has no such run
)

// freed is what was, or would be, deleted.
type freed struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

func (f *freed) add(g freed) { f.Objects, f.Bytes = f.Objects+g.Objects, f.Bytes+g.Bytes }

func (f freed) String() string {
	return humanize.IBytes(uint64(f.Bytes)) + " in " + figures.Of(f.Objects, "object")
}

// addUpKept adds up what stays on the disk.
func (c *cleaned) addUpKept(ctx context.Context, l *installation.Local) error {
	for prefix, to := range map[string]*int64{
		record.RunsPrefix: &c.Kept.Runs, record.PromptsPrefix: &c.Kept.Prompts, record.WorkPrefix: &c.Kept.Work,
	} {
		f, err := cleanUnder(ctx, l.Bucket, prefix, time.Time{}, true)
		if err != nil {
			return fault.Wrap(err, "add up %s", prefix)
		}
		*to = f.Bytes
	}
	if c.DryRun {
		c.Kept.Work -= c.Freed.Bytes - c.Uploads.Bytes
	}
	return filepath.WalkDir(installation.StateDir(l.Dir), func(_ string, f fs.DirEntry, err error) error {
		if err != nil || !f.Type().IsRegular() {
			return err
		}
		info, err := f.Info()
		if errors.Is(err, os.ErrNotExist) { // a running `up` removed it
			return nil
		}
		if err == nil {
			c.Kept.State += info.Size()
		}
		return err
	})
}

// text formats what was deleted: a line for each run, their sum, and what is kept.
func (c cleaned) text() string {
	var b strings.Builder
	did := "freed"
	if c.DryRun {
		did = "would free"
	}
	unanswered, empty, gone := 0, 0, 0
	for _, r := range c.Runs {
		switch {
		case r.Kept == keptUnanswered:
			unanswered++
			continue
		case r.Kept != "":
			continue
		case r.Bytes == 0:
			empty++
			continue
		}
		gone++
		fmt.Fprintf(&b, "%s  %s  %s %s%s\n", r.Run, progress.SanitizeLine(r.Name, nameColumns), did, r.freed, r.lost())
	}
	if c.Uploads.Objects > 0 {
		fmt.Fprintf(&b, "unfinished uploads  %s %s\n", did, c.Uploads)
	}
	if empty > 0 && gone > 0 {
		fmt.Fprintf(&b, "%s with empty files alone\n", figures.Of(empty, "more run"))
	}
	if c.Freed.Objects == 0 {
		did = "nothing to clean: " + did
	}
	fmt.Fprintf(&b, "%s %s\n", did, c.Freed)
	if unanswered > 0 {
		fmt.Fprintf(&b, "kept: %s with items that failed or have no answer, for `rollout retry`: name them, or use --all\n",
			figures.Of(unanswered, "run"))
	}
	size := func(n int64) string { return humanize.IBytes(uint64(max(0, n))) }
	fmt.Fprintf(&b, "kept: %s in %s, %s in %s, %s in %s, %s of state\n", size(c.Kept.Runs), record.RunsPrefix,
		size(c.Kept.Prompts), record.PromptsPrefix, size(c.Kept.Work), record.WorkPrefix, size(c.Kept.State))
	return b.String()
}

// lost says what the run loses with its work files: "; it can't be retried afterwards (7 failed, 3 unanswered)".
func (r cleanedRun) lost() string {
	var parts []string
	if r.Failed > 0 {
		parts = append(parts, figures.Count(r.Failed)+" failed")
	}
	if r.Unanswered > 0 {
		parts = append(parts, figures.Count(r.Unanswered)+" unanswered")
	}
	if len(parts) == 0 {
		return ""
	}
	return "; it can't be retried afterwards (" + strings.Join(parts, ", ") + ")"
}
