package progress

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"rollout/functions/status"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// kept are the bytes of an ended run that stay in the bucket.
type kept struct {
	answers, index, copies int64
	input                  int64 // of the uploaded files, which are the user's
	work                   int64 // results of shards and the files of trainings
	roles                  bool  // the run has other roles than the answer, whose results stay
}

// Work files of an ended run are freed within a scan's interval. WriteKept waits so often for that.
const (
	keptLooks = 50
	keptWait  = 100 * time.Millisecond
)

// WriteKept writes the last line about an ended run: what stays of it on the disk, when its work files are freed. all
// says that the config keeps all work files. It is for buckets in a folder: in clouds the lifecycle decides what stays.
func WriteKept(ctx context.Context, w io.Writer, s status.Status, p host.Ports, all bool) error {
	for look := 0; !all && look < keptLooks; look++ { // the run leaves the index of open runs when they are freed
		if _, err := p.Docs.Get(ctx, record.OpenRunKey(s.Run)); fault.Is(err, fault.NotFound) {
			break
		}
		select {
		case <-time.After(keptWait):
		case <-ctx.Done():
			return nil
		}
	}
	k := kept{roles: len(s.Roles) > 0}
	add := func(prefix string, to func(key string) *int64) error {
		for after := ""; ; {
			infos, err := p.Blobs.List(ctx, prefix, after, blob.MaxList)
			if err != nil {
				return fault.Wrap(err, "add up what run %s keeps", s.Run)
			}
			for _, info := range infos {
				after = info.Key
				*to(info.Key) += info.Size
			}
			if len(infos) < blob.MaxList {
				return nil
			}
		}
	}
	if err := add(record.OutputKey(s.Run, ""), func(string) *int64 { return &k.answers }); err != nil {
		return err
	}
	work := record.WorkPrefix + string(s.Run) + "/"
	if err := add(work, func(key string) *int64 { return k.partOf(s.Run, key) }); err != nil {
		return err
	}
	for _, key := range s.Inputs {
		if info, err := p.Blobs.Stat(ctx, key, ""); err == nil && strings.HasPrefix(key, record.PromptsPrefix) {
			k.input += info.Size
		}
	}
	_, err := io.WriteString(w, terminal.Fact("  kept", labelColumns, k.text(all), terminal.Columns(w)))
	return err
}

// partOf returns what a work file counts as.
func (k *kept) partOf(run identity.RunID, key string) *int64 {
	rest := strings.TrimPrefix(key, record.WorkPrefix+string(run)+"/")
	folder, _, _ := strings.Cut(rest, "/")
	switch {
	case strings.HasPrefix(key, record.ShardObjectsDir(run)), strings.HasPrefix(key, record.TrainingFilesDir(run)):
		return &k.work
	case folder == "upload" || folder == "input": // as infer batch and plan write them
		return &k.copies
	}
	return &k.index
}

// text renders what is kept. Example: "181 MiB of answers, 2.1 MiB of index for show and retry".
func (k *kept) text(all bool) string {
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	text := fmt.Sprintf("%s of answers, %s of index for show and retry", size(k.answers), size(k.index))
	if k.input > 0 {
		text += fmt.Sprintf(", %s of input in %s", size(k.input), record.PromptsPrefix)
	}
	if k.copies > 0 {
		text += fmt.Sprintf(", %s of copies of the input", size(k.copies))
	}
	switch {
	case k.work == 0:
		return text + "; the other work files are freed"
	case all:
		return text + fmt.Sprintf(", %s of work files (storage.keep_work)", size(k.work))
	case k.roles:
		return text + fmt.Sprintf(", %s of what judges and reflections answered", size(k.work))
	}
	return text + fmt.Sprintf(", %s of work files that are still to be freed", size(k.work))
}
