package plan

import (
	"context"
	"encoding/json"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/record"
)

// job is what is planned of a run that trains: a line that stands for the
// training, its one item, and names the rows. So the run is one shard, and how
// rows are read is its executor's affair.
func (p *Planner) job(ctx context.Context, m record.Manifest, rows record.Ranges) (record.Ranges, error) {
	name := m.Inputs[0].Label()
	line, err := json.Marshal(record.Job{ID: m.Name, Prompt: "train " + m.Config.Algorithm.Kind + " on " + name,
		Dataset: record.Dataset{Key: rows.Key, Version: rows.Version, Size: rows.Size, Name: name}})
	if err != nil {
		return record.Ranges{}, fault.WithKind(fault.Internal, err, "encode the job of run %s", m.Run)
	}
	key := record.JobKey(m.Run)
	if err := p.put(ctx, key, strings.NewReader(string(line)+"\n")); err != nil {
		return record.Ranges{}, err
	}
	info, err := p.Blobs.Stat(ctx, key, "")
	return record.Ranges{Key: key, Version: info.Version, Size: info.Size, Count: record.RangeCount(info.Size)}, err
}
