package emulators

import (
	"strings"
	"testing"
	"time"

	"rollout/localstack/aws/provision"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

func TestProvisionedStackIsUsable(t *testing.T) {
	t.Parallel()
	testProvision(t, StartKumo(t))
}

func TestMiniStackIsProvisioned(t *testing.T) {
	testProvision(t, RequireExternal(t).MiniStack(t))
}

// testProvision provisions a stack twice and uses each of its resources.
func testProvision(t *testing.T, e Endpoint) {
	t.Helper()
	d := e.deployment(t)
	cfg := e.Config(t.Context(), t)
	for range 2 {
		if err := provision.Create(t.Context(), cfg, d); err != nil {
			t.Fatal(err)
		}
	}
	bucket := aws.NewBucket(cfg, d.Cloud.S3.Bucket, aws.BucketOptions{})
	if _, err := bucket.Put(t.Context(), "prompts/x.jsonl", strings.NewReader("{}"),
		blob.PutOptions{CreateOnly: true}); err != nil {
		t.Error(err)
	}
	docs := aws.NewDocuments(cfg, d.Cloud.DynamoDB.Table, aws.DocumentOptions{Listed: aws.ListedPrefixes()})
	if _, err := docs.Create(t.Context(), "run/x", []byte("{}")); err != nil {
		t.Error(err)
	}
	queues := aws.NewQueues(cfg, aws.QueueOptions{Prefix: d.Cloud.SQS.Prefix, Poll: time.Second})
	for _, name := range provision.QueueNames(d) {
		all := []string{name}
		if !queue.IsDeadLetterQueue(name) {
			all = append(all, queue.DeadLetterQueue(name))
		}
		for _, q := range all {
			if err := queues.Send(t.Context(), q, [][]byte{[]byte("x")}, 0); err != nil {
				t.Errorf("%s: %v", q, err)
			}
		}
	}
}

// deployment is the parsed config of a deployment on the endpoint.
func (e Endpoint) deployment(t *testing.T) config.Deployment {
	t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte(e.Deployment("t"+fresh(), "")))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestProvisionRefusesRealAccounts(t *testing.T) {
	t.Parallel()
	e := Endpoint{URL: "http://127.0.0.1:1", Bucket: "bucket-x", Table: "table-x"}
	cfg, d := e.Config(t.Context(), t), e.deployment(t)
	for _, address := range []string{"", "https://s3.us-east-1.amazonaws.com", "https://198.51.100.7",
		"https://emulator.example"} {
		cfg.BaseEndpoint = &address
		if err := provision.Create(t.Context(), cfg, d); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: got %v, want a refusal", address, err)
		}
	}
}
