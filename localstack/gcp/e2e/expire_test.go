package e2e

import (
	"strings"
	"testing"
	"time"

	"rollout/functions/reclaim"
	"rollout/localstack/scenarios"
	"rollout/shared/clock"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/record"
)

// The documents of a run in Firestore expire, although commits are aborted and replies are
// lost; its files stay.
func TestDocumentsOfAnEndedRunExpire(t *testing.T) {
	t.Parallel()
	in := open(t, scenarios.Settings{Machines: 1, Faults: 1, More: "\n[storage]\nkeep_documents = \"1h\"\n"})
	ctx := t.Context()
	id := in.Put("prompts/x.jsonl", scenarios.SimplePrompts(60))
	before := in.AwaitEnd(id)
	scenarios.Eventually(t, "the run is in the index", func() bool {
		var x record.RunIndex
		_, _, err := host.Load(ctx, in.Ports.Docs, record.RunIndexKey, &x)
		return err == nil && x.Linked && x.Ended == 1
	})
	// By then, whoever is to be told of its end was told, or never will be.
	for _, later := range []time.Duration{26 * time.Hour, 27 * time.Hour} {
		p := in.Ports
		p.Clock = clock.Skewed{Offset: later}
		e := reclaim.NewExpirer(p, reclaim.ExpireOptions{Keep: in.Deployment.Storage.KeepDocuments.Std()})
		if err := e.ExpireAll(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for d, err := range document.All(ctx, in.Ports.Docs, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(d.Key, string(id)) && !strings.HasPrefix(d.Key, record.FoundPrefix) {
			t.Errorf("%s is left", d.Key)
		}
	}
	if _, err := host.LoadManifest(ctx, in.Ports.Docs, id); !host.IsExpired(err) {
		t.Errorf("the run is %v", err)
	}
	got, ok := in.Find(record.OutputKey(id, record.CompletionsFile))
	if !ok || scenarios.WithoutTimes(got) != before.Completions || got == "" {
		t.Errorf("its answers have changed to %.200q", got)
	}
}
