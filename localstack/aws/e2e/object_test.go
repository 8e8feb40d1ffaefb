package e2e

import (
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/core/identity"
)

// Each file under prompts/ becomes one run, whatever its name, however often S3 and
// EventBridge announce it. Other objects become none.
func TestEachUploadedFileBecomesOneRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 1\nidle = '1m'",
		func(o *fakeaws.Options) { o.Events = fakeaws.Delivery{Copies: 3, Jitter: 300 * time.Millisecond} })
	if err := a.Groups.SetDesired(a.group, 1); err != nil {
		t.Fatal(err)
	}
	const content = "{\"id\":\"a\",\"prompt\":\"hello\"}\n{\"prompt\":7}\n"
	keys := []string{"prompts/a b.jsonl", "prompts/a+b.jsonl", "prompts/a%2Bb.jsonl", "prompts/100%.jsonl",
		"prompts/a&b=c?#.jsonl", "prompts/日本 語/é.jsonl"}
	for _, key := range []string{"runs/x.jsonl", "work/x.jsonl", "pending/x.jsonl", "cas/x.jsonl", "x.jsonl",
		"prompts/x.txt"} {
		a.put(key, content)
		// It does not become a run either if submit is called for it by mistake.
		info, err := a.Stack.Ports.Blobs.Stat(t.Context(), key, "")
		if err != nil {
			t.Fatal(err)
		}
		a.InvokeAsync("submit", fakeaws.S3Event(a.deployment.Bucket, "ObjectCreated:Put",
			fakeaws.Object{Key: "team-a/" + key, Version: info.Version, Size: info.Size}))
	}
	a.InvokeAsync("submit", fakeaws.S3Event(a.deployment.Bucket, "ObjectCreated:Put",
		fakeaws.Object{Key: "team-b/prompts/x.jsonl", Version: "1", Size: 3}))
	ids := map[string]identity.RunID{}
	for _, key := range keys {
		ids[key] = a.put(key, content)
		info, err := a.Stack.Ports.Blobs.Stat(t.Context(), key, "")
		if err != nil {
			t.Fatal(err)
		}
		a.InvokeAsync("submit", fakeaws.EventBridgeS3Event(a.deployment.Bucket,
			fakeaws.Object{Key: "team-a/" + key, Version: info.Version, Size: info.Size}))
	}
	for _, key := range keys {
		wantSame(t, a.awaitEnd(ids[key]), local(t, s, key, content))
	}
	runs, err := a.Stack.Ports.Docs.List(t.Context(), "run/", "", 100)
	if err != nil || len(runs) != len(keys) {
		t.Errorf("%d runs for %d files, %v", len(runs), len(keys), err)
	}
	a.wantNoLoops()
}
