package emulators

import (
	"os"
	"sync"
	"testing"
	"time"

	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/queue"
	"rollout/shared/queue/queuetest"
	"rollout/shared/retry"
	"rollout/shared/secret"
	"rollout/shared/secret/secrettest"
	"rollout/shared/snapshot/snapshottest"
)

func TestInProcess(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		blobs(t, e, blobtest.Features{KeepsVersions: true, InMemory: true})
	})
	t.Run("DynamoDB", func(t *testing.T) { t.Parallel(); documents(t, e) })
	t.Run("SQS", func(t *testing.T) { t.Parallel(); queues(t, e, 0) })
	t.Run("SecretsManager", func(t *testing.T) { t.Parallel(); secrets(t, e) })
	t.Run("Snapshots", func(t *testing.T) { t.Parallel(); snapshots(t, e) })
}

// The first attempt of half of the requests is throttled, or performed and loses
// its reply. The suites pass all the same.
func TestInProcessUnderFaults(t *testing.T) {
	t.Parallel()
	e := StartKumo(t)
	e.Faults = NewFaults(7, 20, 30)
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		blobs(t, e, blobtest.Features{KeepsVersions: true, InMemory: true})
	})
	t.Run("DynamoDB", func(t *testing.T) { t.Parallel(); documents(t, e) })
	t.Run("Snapshots", func(t *testing.T) { t.Parallel(); snapshots(t, e) })
}

// The external emulators run one after another, since each needs the whole
// machine.
func TestMiniStack(t *testing.T) {
	e := RequireExternal(t).MiniStack(t)
	t.Run("S3", func(t *testing.T) { blobs(t, e, blobtest.Features{KeepsVersions: true}) })
	t.Run("DynamoDB", func(t *testing.T) { t.Parallel(); documents(t, e) })
	t.Run("SQS", func(t *testing.T) { t.Parallel(); queues(t, e, slow) })
	t.Run("SecretsManager", func(t *testing.T) { t.Parallel(); secrets(t, e) })
}

func TestDynalite(t *testing.T) {
	documents(t, RequireExternal(t).Dynalite(t))
}

func TestFauxqs(t *testing.T) {
	queues(t, RequireExternal(t).Fauxqs(t), slow)
}

// TestAccount runs the suites against a real account, for some cents.
// ROLLOUT_AWS_BUCKET names a versioned bucket, ROLLOUT_AWS_TABLE a table with the
// string keys p and k. The test creates and removes queues and secrets.
func TestAccount(t *testing.T) {
	t.Parallel()
	e := Endpoint{Name: "AWS", Bucket: os.Getenv("ROLLOUT_AWS_BUCKET"), Table: os.Getenv("ROLLOUT_AWS_TABLE")}
	if e.Bucket == "" || e.Table == "" {
		t.Skip("SKIPPED: no real account: set ROLLOUT_AWS_BUCKET and ROLLOUT_AWS_TABLE")
	}
	t.Run("S3", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blob.Store { return e.Blobs(t) }, blobtest.Features{KeepsVersions: true})
	})
	t.Run("DynamoDB", func(t *testing.T) { t.Parallel(); documentSuite(t, e) })
	t.Run("SQS", func(t *testing.T) { t.Parallel(); queues(t, e, slow) })
	t.Run("SecretsManager", func(t *testing.T) { t.Parallel(); secrets(t, e) })
}

func blobs(t *testing.T, e Endpoint, f blobtest.Features) {
	e.MakeBucket(t.Context(), t)
	blobtest.Run(t, func(t *testing.T) blob.Store { return e.Blobs(t) }, f)
}

func documents(t *testing.T, e Endpoint) {
	e.MakeTable(t.Context(), t)
	documentSuite(t, e)
}

func documentSuite(t *testing.T, e Endpoint) {
	var prefixes sync.Map // of the open stores, to reopen them
	documenttest.Run(t, func(t *testing.T) document.Store {
		prefix := fresh()
		s := e.Documents(t, prefix)
		prefixes.Store(s, prefix)
		return s
	}, documenttest.Features{LosesReplies: e.Faults != nil, Reopen: func(t *testing.T, s document.Store) document.Store {
		prefix, _ := prefixes.Load(s)
		return e.Documents(t, prefix.(string))
	}})
}

// slow is the budget for the requests of a queue's test with an external emulator.
const slow = 30 * time.Second

func queues(t *testing.T, e Endpoint, long time.Duration) {
	var prefixes sync.Map
	queuetest.Run(t, func(t *testing.T) queue.Queues {
		prefix := fresh() + "-"
		q := e.Queues(t, prefix)
		prefixes.Store(q, prefix)
		return q
	}, queuetest.Features{RequestBudget: long, Reopen: func(t *testing.T, q queue.Queues) queue.Queues {
		prefix, _ := prefixes.Load(q.(*aws.Queues))
		return e.Queues(t, prefix.(string))
	}})
}

// snapshots tests snapshots of trainings, whose archives are in S3 and whose documents are in
// DynamoDB.
func snapshots(t *testing.T, e Endpoint) {
	e.Bucket, e.Table = "bucket-"+fresh(), "table-"+fresh() // other suites make those of the endpoint
	e.MakeBucket(t.Context(), t)
	e.MakeTable(t.Context(), t)
	snapshottest.Run(t, func(t *testing.T) snapshottest.Stores {
		return snapshottest.Stores{Blobs: blob.Reliable(e.Blobs(t), retry.Policy{}), Docs: e.Documents(t, fresh())}
	})
}

func secrets(t *testing.T, e Endpoint) {
	secrettest.Run(t, func(t *testing.T, allow []string, set map[string]string) secret.Store {
		return e.Secrets(t, allow, set)
	})
}
