package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"

	"rollout/functions/diagnosis"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// maxEvents limits the lines of an event file that explain shows.
const maxEvents = 20

// eventsOf returns the last lines of an event file about the subject of the explanation: its items and their shards if
// it has items, else the run and its shards.
func eventsOf(ctx context.Context, path string, x diagnosis.Explanation) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "read the events", Err: err,
			Remedy: "name the file that `rollout up` wrote with --events-file"}
	}
	defer f.Close() // opened for reading: closing loses nothing
	id, items, shards := subjectOf(x)
	var out []string
	lines := jsonl.NewScanner(f, jsonl.Options{MaxLine: 1 << 20})
	for {
		l, err := lines.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil || ctx.Err() != nil {
			return out, fault.WithKind(fault.Invalid, err, "read the events")
		}
		if !bytes.Contains(l.Bytes, []byte(id)) {
			continue
		}
		var e struct {
			Run   string
			Shard *uint64
			Item  *uint64
		}
		if json.Unmarshal(l.Bytes, &e) != nil || e.Run != string(id) {
			continue
		}
		wanted := e.Item == nil
		if len(items) > 0 {
			wanted = e.Item != nil && items[*e.Item] || e.Item == nil && e.Shard != nil && shards[*e.Shard]
		}
		if !wanted {
			continue
		}
		if out = append(out, string(l.Bytes)); len(out) > maxEvents {
			out = out[1:]
		}
	}
}
