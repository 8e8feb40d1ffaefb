package e2e

import (
	"fmt"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/record"
)

// Several concurrent calls of finalize write the files of a run of many shards,
// which are then joined, also if a shard has copies of another shard's answers.
func TestFilesOfALargeRunAreWrittenInSegments(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 2\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 2); err != nil {
		t.Fatal(err)
	}
	const key, items = "prompts/large.jsonl", 300
	const config = "schema_version = 1\n[shard]\nitems = 1\n[dedupe]\nenabled = true\nsampled = true\n"
	var content strings.Builder
	for n := range items {
		if n%7 == 3 {
			content.WriteString("[]\n") // invalid
			continue
		}
		fmt.Fprintf(&content, "{\"id\":\"%03d\",\"prompt\":\"question %d\"}\n", n, n%200) // a third repeats a prompt
	}
	a.put("prompts/large.toml", config)
	id := a.put(key, content.String())
	wantSame(t, a.awaitEnd(id), local(t, s, key, content.String(), config))
	infos, err := a.Stack.Ports.Blobs.List(t.Context(), record.OutputSegmentDir(id)+"segments/", "", blob.MaxList)
	if err != nil || len(infos) < 2 {
		t.Errorf("%d segments, want at least 2: %v", len(infos), err)
	}
	a.wantNoLoops()
}
