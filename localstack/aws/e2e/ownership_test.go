package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/functions/reclaim"
	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/ownership"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// scanUploads makes the scan of reclaim's function, with its role, as it would be made
// that much later.
func (a *installation) scanUploads(later time.Duration) error {
	a.t.Helper()
	s := a.Reclaim()
	p := s.Stores().Ports
	p.Clock = clock.Skewed{Offset: later}
	return reclaim.ScanUploads(a.t.Context(), p, reclaim.UploadOptions{Bucket: a.deployment.Bucket, Recent: true,
		CheckOwner: ownership.OfCloud(s).Check})
}

// The bucket belongs to another stack: submit, the user's command and the doctor refuse it,
// and the event of an upload ends as a dead letter. Once the bucket is this stack's, the
// scan finds the upload, which becomes a run.
func TestBucketOfAnotherStackIsRefusedAndItsDeadLettersAreFoundAgain(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1}, nil)
	const mark = `{"schema":1,"installation":"another","place":"other in us-east-1","at":"2026-01-02T03:04:05Z"}`
	ctx, blobs := t.Context(), a.Stores().Ports.Blobs
	if _, err := blobs.Put(ctx, record.OwnerKey, strings.NewReader(mark), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	const key = "prompts/x.jsonl"
	content := scenarios.SimplePrompts(20)
	id := a.Put(key, content)
	scenarios.Eventually(t, "the event is a dead letter",
		func() bool { return a.depth(queue.DeadLetterQueue(host.TaskQueue)) == 1 })
	const refusal = "belongs to another installation: other in us-east-1, since 2026-01-02"
	if log := a.Logs("submit"); !strings.Contains(log, refusal) {
		t.Errorf("submit's log lacks %q:\n%s", refusal, scenarios.End(log))
	}
	file := scenarios.Write(t, t.TempDir(), "y.jsonl", content)
	if out, err := a.Command("submit", file); err == nil ||
		!strings.Contains(out, refusal) || !strings.Contains(out, record.OwnerKey) {
		t.Errorf("submit: %v\n%s", err, out)
	}
	if _, ok := a.Find("prompts/y.jsonl"); ok {
		t.Error("the refused file was uploaded")
	}
	out, err := scenarios.Rollout(t, programs.Path("rollout"), a.Deployed.Environment("owner"), "cloud", "doctor",
		"--provider", "aws", "--no-color", "--config", filepath.Join(a.dir, "rollout.toml"))
	if err == nil || !strings.Contains(out, "✗ object_store") || !strings.Contains(out, refusal) {
		t.Errorf("the doctor: %v\n%s", err, out)
	}
	if err := a.scanUploads(time.Hour); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), refusal) {
		t.Errorf("the scan: %v", err)
	}
	if _, err := host.LoadManifest(ctx, a.Stores().Ports.Docs, id); !fault.Is(err, fault.NotFound) {
		t.Errorf("the upload is a run: %v", err)
	}

	if err := blobs.Delete(ctx, record.OwnerKey, ""); err != nil { // as the message says
		t.Fatal(err)
	}
	for range 2 { // the second one is within the hour
		if err := a.scanUploads(time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	scenarios.WantSame(t, a.AwaitEnd(id), a.Local(key, content))
	if text, _ := a.Find(record.OwnerKey); !strings.Contains(text, a.deployment.Cloud.Name+" in us-east-1") {
		t.Errorf("the bucket belongs to %s", text)
	}
	if n := a.Calls()["submit"].Count; n != 4 { // three attempts, and the one of the scan
		t.Errorf("submit was called %d times", n)
	}
	a.Check()
}
