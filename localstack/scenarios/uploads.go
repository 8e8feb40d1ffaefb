package scenarios

import (
	"fmt"
	"strings"
	"testing"

	"rollout/localstack/fakellm"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// Each file under prompts/ becomes one run, whatever its name, however often and in which
// order the cloud announces it, and whatever requests fail. Other objects become none.
func eachUploadBecomesOneRun(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{}, Settings{Machines: 1, Faults: 1})
	const content = "{\"id\":\"a\",\"prompt\":\"hello\"}\n{\"prompt\":7}\n"
	keys := []string{"prompts/a b.jsonl", "prompts/a+b.jsonl", "prompts/a%2Bb.jsonl", "prompts/100%.jsonl",
		"prompts/a&b=c?#.jsonl", "prompts/日本 語/é.jsonl"}
	for _, key := range []string{"runs/x.jsonl", "work/x.jsonl", "pending/x.jsonl", "cas/x.jsonl", "x.jsonl",
		"prompts/x.txt"} {
		d.Announce(Object{Prefix + key, d.Upload(key, content), int64(len(content))})
	}
	d.Announce(Object{"team-b/prompts/x.jsonl", "1", 3})
	ids := map[string]identity.RunID{}
	for _, key := range keys {
		version := d.Upload(key, content)
		d.Announce(Object{Prefix + key, version, int64(len(content))})
		ids[key] = identity.UploadRun(d.Stores().Deployment.Bucket, key, version)
	}
	for _, key := range keys {
		WantSame(t, d.AwaitEnd(ids[key]), d.Local(key, content))
	}
	runs, err := d.Stores().Ports.Docs.List(t.Context(), "run/", "", 100)
	if err != nil || len(runs) != len(keys) {
		t.Errorf("%d runs for %d files, %v", len(runs), len(keys), err)
	}
	d.Check()
}

// Several concurrent calls of finalize write the files of a run of many shards, which are
// then joined, also if a shard has copies of another shard's answers.
func largeRunIsWrittenInSegments(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{}, Settings{Machines: 2})
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
	d.Upload("prompts/large.toml", config)
	id := d.Put(key, content.String())
	WantSame(t, d.AwaitEnd(id), d.Local(key, content.String(), config))
	infos, err := d.Stores().Ports.Blobs.List(t.Context(), record.OutputSegmentDir(id)+"segments/", "", blob.MaxList)
	if err != nil || len(infos) < 2 {
		t.Errorf("%d segments, want at least 2: %v", len(infos), err)
	}
	d.Check()
}

// A run whose config asks for its facts has the same Parquet files as on a laptop, byte for byte.
func factsAreThoseOfALaptop(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{}, Settings{Machines: 2})
	const key, config = "prompts/facts.jsonl", "schema_version = 1\n[facts]\nparquet = true\npart_items = 40\n"
	content := MixedPrompts(160)
	d.Upload("prompts/facts.toml", config)
	id := d.Put(key, content)
	d.AwaitEnd(id)
	l := NewLaptop(t, d.cloud.Program, d.engine(), SmallShards)
	parts := 0
	for name, want := range l.Files(l.Complete(key, content, config)) {
		if !strings.HasPrefix(name, "facts/") {
			continue
		}
		parts++
		if got, ok := d.Find(record.OutputKey(id, name)); !ok || got != want || !strings.HasPrefix(got, "PAR1") {
			t.Errorf("%s has %d bytes, and %d on a laptop, or others", name, len(got), len(want))
		}
	}
	if parts < 3 {
		t.Errorf("there are %d files of facts, want several", parts)
	}
	d.Check()
}
