package emulators

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	ddbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"rollout/shared/aws"
)

const cleaningTimeout = time.Minute // for removals at the end of a test

// fresh returns a name that no other test uses.
func fresh() string { return strings.ToLower(rand.Text()[:8]) }

// MakeBucket creates the endpoint's bucket, with versioning.
func (e Endpoint) MakeBucket(ctx context.Context, t testing.TB) {
	t.Helper()
	e.Faults = nil
	client := s3.NewFromConfig(e.Config(ctx, t), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &e.Bucket}); err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	if _, err := client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &e.Bucket,
		VersioningConfiguration: &s3types.VersioningConfiguration{
			Status: s3types.BucketVersioningStatusEnabled,
		},
	}); err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
}

// MakeTable creates the endpoint's table.
func (e Endpoint) MakeTable(ctx context.Context, t testing.TB) {
	t.Helper()
	e.Faults = nil
	client := dynamodb.NewFromConfig(e.Config(ctx, t))
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &e.Table, BillingMode: ddbtypes.BillingModePayPerRequest,
		AttributeDefinitions: []ddbtypes.AttributeDefinition{
			{AttributeName: new("p"), AttributeType: ddbtypes.ScalarAttributeTypeS},
			{AttributeName: new("k"), AttributeType: ddbtypes.ScalarAttributeTypeS},
		},
		KeySchema: []ddbtypes.KeySchemaElement{
			{AttributeName: new("p"), KeyType: ddbtypes.KeyTypeHash},
			{AttributeName: new("k"), KeyType: ddbtypes.KeyTypeRange},
		},
	})
	if err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	wait := dynamodb.NewTableExistsWaiter(client,
		func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 100 * time.Millisecond })
	if err := wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &e.Table}, time.Minute); err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
}

// Blobs returns an empty store for one test: a prefix of the bucket.
func (e Endpoint) Blobs(t testing.TB) *aws.Bucket {
	t.Helper()
	cfg, prefix := e.Config(t.Context(), t), "test-"+fresh()+"/"
	if !e.Emulated() {
		t.Cleanup(func() { e.emptyPrefix(t, cfg, prefix) })
	}
	return aws.NewBucket(cfg, e.Bucket, aws.BucketOptions{Prefix: prefix, PartBytes: 5 << 20})
}

// emptyPrefix removes all versions below a prefix of a real bucket.
func (e Endpoint) emptyPrefix(t testing.TB, cfg awssdk.Config, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleaningTimeout)
	defer cancel()
	client := s3.NewFromConfig(cfg)
	pages := s3.NewListObjectVersionsPaginator(client, &s3.ListObjectVersionsInput{Bucket: &e.Bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			t.Errorf("clean %s: %v", prefix, err)
			return
		}
		var all []s3types.ObjectIdentifier
		for _, v := range page.Versions {
			all = append(all, s3types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			all = append(all, s3types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(all) == 0 {
			continue
		}
		if _, err := client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &e.Bucket,
			Delete: &s3types.Delete{Objects: all}}); err != nil {
			t.Errorf("clean %s: %v", prefix, err)
		}
	}
}

// Documents returns an empty store for one test: a prefix of the table's keys. The
// items are not removed.
func (e Endpoint) Documents(t testing.TB, prefix string) *aws.Documents {
	t.Helper()
	return aws.NewDocuments(e.Config(t.Context(), t), e.Table,
		aws.DocumentOptions{Prefix: prefix, Listed: aws.ListedPrefixes(), Spread: 3})
}

// Queues returns queues for one test, whose names begin with the prefix. They are
// created on first use.
func (e Endpoint) Queues(t testing.TB, prefix string) *aws.Queues {
	t.Helper()
	cfg := e.Config(t.Context(), t)
	if !e.Emulated() {
		t.Cleanup(func() { removeQueues(t, cfg, prefix) })
	}
	return aws.NewQueues(cfg, aws.QueueOptions{Prefix: prefix, CreateMissing: true, AlwaysLongPoll: !e.Emulated(),
		Poll: e.poll()})
}

// poll limits long polls of emulators, which miss messages while they wait; see
// DIFFERENCES.md.
func (e Endpoint) poll() time.Duration {
	if e.Emulated() {
		return time.Second
	}
	return 0
}

// removeQueues deletes the queues of a real account whose names begin with the
// prefix.
func removeQueues(t testing.TB, cfg awssdk.Config, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleaningTimeout)
	defer cancel()
	client := sqs.NewFromConfig(cfg)
	out, err := client.ListQueues(ctx, &sqs.ListQueuesInput{QueueNamePrefix: &prefix})
	if err != nil {
		t.Errorf("clean queues %s: %v", prefix, err)
		return
	}
	for _, url := range out.QueueUrls {
		if _, err := client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			t.Errorf("clean queue %s: %v", url, err)
		}
	}
}

// Secrets returns a store of the allowed names with the secrets set.
func (e Endpoint) Secrets(t testing.TB, allow []string, set map[string]string) *aws.Secrets {
	t.Helper()
	cfg, prefix := e.Config(t.Context(), t), "test-"+fresh()+"/"
	for name, text := range set {
		e.secret(t, prefix+name, text)
	}
	return aws.NewSecrets(cfg, allow, aws.SecretOptions{Prefix: prefix})
}

// secret creates a secret until the test ends.
func (e Endpoint) secret(t testing.TB, id, text string) {
	t.Helper()
	client := secretsmanager.NewFromConfig(e.Config(t.Context(), t))
	if _, err := client.CreateSecret(t.Context(),
		&secretsmanager.CreateSecretInput{Name: &id, SecretString: &text}); err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleaningTimeout)
		defer cancel()
		_, err := client.DeleteSecret(ctx, &secretsmanager.DeleteSecretInput{SecretId: &id,
			ForceDeleteWithoutRecovery: awssdk.Bool(true)})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("clean secret %s: %v", id, err)
		}
	})
}
