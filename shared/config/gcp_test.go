package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const gcpHead = "schema_version = 1\n[cloud]\nprovider = 'gcp'\nproject = 'acme-ml'\nregion = 'us-central1'\n" +
	"gcs.bucket = 'acme-rollout'\n"

func TestGoogleCloudNeedsProjectRegionAndBucket(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("rollout.toml", []byte(gcpHead))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultDeployment()
	want.Bucket = "acme-rollout"
	want.Health = DefaultCloudHealth()
	want.Worker.DrainBudget = Duration(15 * time.Second)
	want.Cloud = Cloud{
		Provider: "gcp", Project: "acme-ml", Region: "us-central1", Name: "rollout",
		GCS:       GCS{Bucket: "acme-rollout"},
		Firestore: Firestore{"rollout"},
		PubSub:    PubSub{"rollout-", "rollout-push@acme-ml.iam.gserviceaccount.com"},
		Secrets:   CloudSecrets{Prefix: "rollout-"},
		Fleet: Fleet{8, 4, Duration(5 * time.Minute), Duration(time.Minute),
			[]string{"g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"},
			"vllm/vllm-openai:v0.21.0-cu129"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestGoogleCloudProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"nothing but the provider": {"schema_version = 1\ncloud.provider = 'gcp'",
			`d.toml:2: cloud.project: missing: name the project by its id, such as "acme-ml"` + "\n" +
				`d.toml:2: cloud.region: missing: name the region, such as "us-central1"` + "\n" +
				`d.toml:2: cloud.gcs.bucket: missing: name the bucket; its name must be unique among all buckets of Cloud Storage`},
		"a project's number": {strings.Replace(gcpHead, "acme-ml", "123456", 1),
			`d.toml:4: cloud.project: "123456" is not the id of a project: write its id, not its name or number`},
		"a zone": {strings.Replace(gcpHead, "us-central1", "us-central1-a", 1),
			`d.toml:5: cloud.region: "us-central1-a" is not a region: write one such as "us-central1"`},
		"a reserved bucket": {strings.Replace(gcpHead, "acme-rollout", "my-google-files", 1),
			`d.toml:6: cloud.gcs.bucket: "my-google-files" has characters that Google reserves: choose another name`},
		"an own folder as the prefix": {gcpHead + "gcs.prefix = 'runs/'",
			`d.toml:7: cloud.gcs.prefix: "runs/" is a folder that rollout creates below the prefix: use another name`},
		"a short name": {gcpHead + "name = 'ml'",
			`d.toml:7: cloud.name: "ml" is also the name of the database, which needs at least 4 characters: ` +
				`use a longer one, or name the database in [cloud.firestore]`},
		"a reserved prefix": {gcpHead + "pubsub.prefix = 'goog-'",
			`d.toml:7: cloud.pubsub.prefix: "goog-" begins with characters that Google reserves: use another prefix`},
		"a person's account": {gcpHead + "pubsub.push_account = 'me@acme.com'",
			`d.toml:7: cloud.pubsub.push_account: "me@acme.com" can't be used here: write a service account's address, ` +
				`such as "rollout-push@acme-ml.iam.gserviceaccount.com"`},
		"a folder of secrets": {gcpHead + "secrets.prefix = 'a/'",
			`d.toml:7: cloud.secrets.prefix: "a/" can't be used here: use at most 100 of letters, digits, - and _`},
		"a machine of another cloud": {gcpHead + "fleet.instance_types = ['g6.xlarge']",
			`d.toml:7: cloud.fleet.instance_types[0]: "g6.xlarge" can't be used here: write one such as "g2-standard-8"`},
		"unknown machines of a pool": {gcpHead + "[[pool]]\nname = 'a'\nmodel = 'm'\nmachines = 'cloudrun'",
			`d.toml:10: pool[0].machines: "cloudrun" is not a valid kind of machines; did you mean "cloud-run"?`},
		"a project on AWS": {head + cloudHead + "project = 'acme-ml'",
			`d.toml:6: cloud.project: belongs to the provider "gcp", and cloud.provider is "aws": remove it`},
		"a table of another provider": {gcpHead + "sqs.prefix = 'b-'",
			`d.toml:7: cloud.sqs: belongs to the provider "aws", and cloud.provider is "gcp": remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseDeployment("d.toml", []byte(c.src))
			wantProblem(t, err, c.want)
		})
	}
}

func TestGoogleCloudStartsAndEndsMachines(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("d.toml", []byte(gcpHead+"fleet.shards_per_machine = 3\nfleet.idle = '1m'\n"))
	if err != nil || got.Cloud.Fleet.ShardsPerMachine != 3 || got.Cloud.Fleet.IdleTimeout != Duration(time.Minute) {
		t.Errorf("fleet %+v, %v", got.Cloud.Fleet, err)
	}
}

func TestDefaultDatabaseMayBeNamed(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("d.toml", []byte(gcpHead+"name = 'ml'\nfirestore.database = '(default)'\n"))
	if err != nil || got.Cloud.Firestore.Database != "(default)" {
		t.Errorf("database %q, %v", got.Cloud.Firestore.Database, err)
	}
}

func TestMachinesAreBoughtAsTheProviderCan(t *testing.T) {
	t.Parallel()
	pool := func(more string) string { return "[[pool]]\nname = 'a'\nmodel = 'm'\n" + more + "\n" }
	got, err := ParseDeployment("d.toml", []byte(gcpHead+pool("provisioning = 'flex-start'")))
	if err != nil || got.Pools[0].Provisioning != ProvisioningFlexStart {
		t.Errorf("pools %+v, %v", got.Pools, err)
	}
	const aws = "schema_version = 1\n[cloud]\nprovider = 'aws'\nregion = 'eu-west-1'\ns3.bucket = 'acme-bucket'\n"
	for src, want := range map[string]string{
		gcpHead + pool("provisioning = 'reserved'"): `"reserved" is not a valid way to buy machines: ` +
			"use spot or flex-start or standard",
		gcpHead + pool("machines = 'cloud-run'\nprovisioning = 'spot'"): "tasks of Cloud Run are bought in one way " +
			"only: remove it",
		aws + pool("provisioning = 'flex-start'"): `"flex-start" is not a valid way to buy machines: use spot or standard`,
		"schema_version = 1\n" + pool("provisioning = 'spot'"): "an installation outside a cloud buys no machines: " +
			"remove it",
	} {
		_, err := ParseDeployment("d.toml", []byte(src))
		line := strings.Count(src, "\n") // the last one
		wantProblem(t, err, fmt.Sprintf("d.toml:%d: pool[0].provisioning: %s", line, want))
	}
}

func TestTasksOfCloudRunNeedGoogleCloud(t *testing.T) {
	t.Parallel()
	const pool = "[[pool]]\nname = 'a'\nmodel = 'm'\nmachines = 'cloud-run'\n"
	got, err := ParseDeployment("d.toml", []byte(gcpHead+pool))
	if err != nil || got.Pools[0].Machines != MachinesCloudRun {
		t.Errorf("pools %+v, %v", got.Pools, err)
	}
	_, err = ParseDeployment("d.toml", []byte("schema_version = 1\n"+pool))
	wantProblem(t, err, `d.toml:5: pool[0].machines: the installation's provider has no machines "cloud-run": remove it`)
}
