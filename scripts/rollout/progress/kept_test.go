package progress

import (
	"bytes"
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/memory"
	"rollout/shared/record"
)

func TestKeptNamesWhatStaysOfAnEndedRun(t *testing.T) {
	t.Parallel()
	const id = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	bucket := memory.NewBucket(clock.System{})
	for key, size := range map[string]int{
		record.OutputKey(id, record.CompletionsFile): 2048, record.OutputKey(id, record.SummaryFile): 1024,
		record.FileEntriesKey(id): 24, record.ShardTableKey(id, 0): 1000, record.ShardObjectKey(id, 0, 1, "x"): 4096,
		record.UnpackedKey(id, 0): 512, "prompts/x.jsonl": 5120,
	} {
		object := strings.NewReader(strings.Repeat("x", size))
		if _, err := bucket.Put(t.Context(), key, object, blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := status.Status{Run: id, Inputs: []string{"prompts/x.jsonl", "/home/me/y.jsonl"}}
	const kept = "  kept        3.0 KiB of answers, 1.0 KiB of index, 5.0 KiB of input in prompts/, " +
		"512 B of copies of the input"
	for _, c := range []struct {
		all   bool
		roles []status.Role
		want  string
	}{
		{false, nil, kept + "; the work files are freed\n"},
		{true, nil, kept + ", 4.0 KiB of work files (storage.keep_work)\n"},
		{false, make([]status.Role, 2), kept + ", the answers of judges and reflections; the other work files are freed\n"},
	} {
		s.Roles = c.roles
		var out bytes.Buffer
		if err := WriteKept(t.Context(), &out, s, bucket, c.all); err != nil || out.String() != c.want {
			t.Errorf("%v: %q, want %q", err, out.String(), c.want)
		}
	}
}
