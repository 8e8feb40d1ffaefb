package emulators

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	secretmanager "cloud.google.com/go/secretmanager/apiv1"
	"cloud.google.com/go/secretmanager/apiv1/secretmanagerpb"
	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"rollout/shared/blob"
	"rollout/shared/blob/blobtest"
	"rollout/shared/document"
	"rollout/shared/document/documenttest"
	"rollout/shared/gcp"
	"rollout/shared/secret"
	"rollout/shared/secret/secrettest"
)

const cleaningTimeout = 5 * time.Minute // for removals at the end of a test

// TestProject runs suites against a real project, for some cents. ROLLOUT_GCP_PROJECT
// names it, ROLLOUT_GCP_BUCKET a bucket that keeps versions, ROLLOUT_GCP_DATABASE a
// Firestore database. The test creates and removes objects and secrets, and leaves
// documents in collections of their own. Pub/Sub is not tested: it would need topics.
func TestProject(t *testing.T) {
	t.Parallel()
	project, bucket := os.Getenv("ROLLOUT_GCP_PROJECT"), os.Getenv("ROLLOUT_GCP_BUCKET")
	database := os.Getenv("ROLLOUT_GCP_DATABASE")
	if project == "" || bucket == "" || database == "" {
		t.Skip("SKIPPED: no real project: set ROLLOUT_GCP_PROJECT, ROLLOUT_GCP_BUCKET and ROLLOUT_GCP_DATABASE")
	}
	cfg, err := gcp.LoadConfig(project)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("CloudStorage", func(t *testing.T) {
		blobtest.Run(t, func(t *testing.T) blob.Store {
			prefix := "test-" + fresh() + "/"
			t.Cleanup(func() { emptyPrefix(t, bucket, prefix) })
			b, err := gcp.NewBucket(t.Context(), cfg, bucket, gcp.BucketOptions{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}, blobtest.Features{KeepsVersions: true})
	})
	t.Run("Firestore", func(t *testing.T) {
		t.Parallel()
		documenttest.Run(t, func(t *testing.T) document.Store {
			docs, err := gcp.NewDocuments(t.Context(), cfg, gcp.DocumentOptions{Database: database,
				Collection: "test-" + fresh(), Listed: gcp.ListedDocuments(), Spread: 3})
			if err != nil {
				t.Fatal(err)
			}
			return docs
		}, documenttest.Features{})
	})
	t.Run("SecretManager", func(t *testing.T) {
		t.Parallel()
		secrettest.Run(t, func(t *testing.T, allow []string, set map[string]string) secret.Store {
			prefix := "test-" + fresh() + "-"
			makeSecrets(t, project, prefix, set)
			secrets, err := gcp.NewSecrets(t.Context(), cfg, allow, gcp.SecretOptions{Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			return secrets
		})
	})
}

// emptyPrefix removes all versions below a prefix of a real bucket.
func emptyPrefix(t *testing.T, bucket, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleaningTimeout)
	defer cancel()
	client, err := storage.NewClient(ctx)
	if err != nil {
		t.Errorf("clean %s: %v", prefix, err)
		return
	}
	defer client.Close() // nothing is pending
	b := client.Bucket(bucket)
	objects := b.Objects(ctx, &storage.Query{Prefix: prefix, Versions: true})
	for {
		o, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return
		}
		if err == nil {
			err = b.Object(o.Name).Generation(o.Generation).Delete(ctx)
		}
		if err != nil {
			t.Errorf("clean %s: %v", prefix, err)
			return
		}
	}
}

// makeSecrets creates secrets until the test ends.
func makeSecrets(t *testing.T, project, prefix string, set map[string]string) {
	t.Helper()
	client, err := secretmanager.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // nothing is pending
	for name, text := range set {
		made, err := client.CreateSecret(t.Context(), &secretmanagerpb.CreateSecretRequest{
			Parent: "projects/" + project, SecretId: prefix + name,
			Secret: &secretmanagerpb.Secret{Replication: &secretmanagerpb.Replication{
				Replication: &secretmanagerpb.Replication_Automatic_{Automatic: &secretmanagerpb.Replication_Automatic{}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), cleaningTimeout)
			defer cancel()
			if err := client.DeleteSecret(ctx, &secretmanagerpb.DeleteSecretRequest{Name: made.GetName()}); err != nil {
				t.Errorf("clean %s: %v", made.GetName(), err)
			}
		})
		if _, err := client.AddSecretVersion(t.Context(), &secretmanagerpb.AddSecretVersionRequest{
			Parent: made.GetName(), Payload: &secretmanagerpb.SecretPayload{Data: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
	}
}
