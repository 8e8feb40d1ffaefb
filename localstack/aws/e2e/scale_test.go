package e2e

import (
	"fmt"
	"strings"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// Without a worker an upload starts machines, which answer it and end when they are
// idle.
func TestUploadStartsMachinesThatEndWhenIdle(t *testing.T) {
	t.Parallel()
	s := serve(t, "--latency", "20ms")
	a := open(t, s, "max_machines = 3\nshards_per_machine = 4\nidle = '2s'", nil)
	const key = "prompts/x.jsonl"
	content := mixedPrompts(160)
	id := a.put(key, content)
	wantSame(t, a.awaitEnd(id), local(t, s, key, content))
	if _, peak, _ := a.Groups.Size(a.group); peak != 3 {
		t.Errorf("the group had at most %d machines, want 3", peak)
	}
	eventually(t, "the machines end", func() bool {
		desired, _, alive := a.Groups.Size(a.group)
		return desired == 0 && alive == 0
	})
}

// Each message is a batch of its own, so that the run takes hundreds of steps. No
// chain of invocations is cut.
func TestLongRunIsNotCutAsALoop(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 2\nidle = '1m'", func(o *fakeaws.Options) { o.BatchSize = 1 })
	if err := a.Groups.SetDesired(a.group, 2); err != nil {
		t.Fatal(err)
	}
	const key = "prompts/long.jsonl"
	content := simplePrompts(8 * 320)
	id := a.put(key, content)
	wantSame(t, a.awaitEnd(id), local(t, s, key, content))
	a.wantNoLoops()
	if calls := a.Calls()["coordinate"]; calls.Count < 320 {
		t.Errorf("coordinate had %d steps, want at least 320", calls.Count)
	}
}

// Many runs share coordinate's batches, each at another stage of its life. Their chains
// of invocations do not lengthen each other.
func TestChainsOfManyRunsAreAsShortAsThoseOfOne(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 1\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 1); err != nil {
		t.Fatal(err)
	}
	var ids []identity.RunID
	for n := range 24 {
		ids = append(ids, a.put(fmt.Sprintf("prompts/%d.jsonl", n), simplePrompts(2)))
	}
	for _, id := range ids {
		if got := a.awaitEnd(id).summary; got.Completed != 2 {
			t.Errorf("run %s has %d answers, want 2", id, got.Completed)
		}
	}
	a.wantNoLoops()
}

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
