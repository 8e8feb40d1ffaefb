package e2e

import (
	"os"
	"strings"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/iam"
	"rollout/shared/config"
)

// roles are the roles of the stack's golden template, with the names of the
// deployment at hand.
func roles(t *testing.T, d config.Deployment) *iam.Roles {
	t.Helper()
	template, err := os.ReadFile("../../../infra/aws/stack/testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	w := d.Cloud
	text := strings.NewReplacer("acme-batches", w.S3.Bucket, "team-a/", w.S3.Prefix, "eu-central-1", fakeaws.Region,
		"acme-small", w.FleetName(pool), "acme-work-small", w.SQS.Prefix+"work-"+pool, "acme-urgent-small",
		w.SQS.Prefix+"urgent-"+pool,
		"acme/", w.Secrets.Prefix, "acme", w.Name).Replace(string(template))
	r, err := iam.ReadTemplate([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &r
}
