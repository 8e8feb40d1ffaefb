package plan

import (
	"context"
	"encoding/json"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/record"
)

// job writes the object that is planned for a training: a single line, the run's
// one item, which names the training rows. The run thus has one shard, and its
// executor reads the rows.
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
