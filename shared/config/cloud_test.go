package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const cloudHead = "[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\ns3.bucket = 'acme-rollout'\n"

func TestACloudHasDefaultsOfItsOwn(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("rollout.toml", []byte(head+cloudHead))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultDeployment()
	want.Bucket = "acme-rollout"
	want.Health = Health{Duration(10 * time.Second), Duration(40 * time.Second), Duration(time.Minute), Duration(2 * time.Second)}
	want.Worker.DrainBudget = Duration(time.Minute)
	want.Cloud = Cloud{
		Provider: "aws", Region: "us-east-1", Name: "rollout",
		S3: S3{Bucket: "acme-rollout"}, DynamoDB: DynamoDB{"rollout"}, SQS: SQS{"rollout-"}, Secrets: CloudSecrets{Prefix: "rollout/"},
		Fleet: Fleet{8, 4, Duration(5 * time.Minute), []string{"g6.xlarge", "g5.xlarge", "g4dn.xlarge"}, "vllm/vllm-openai:v0.11.0"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if f, g := got.Cloud.FunctionName("plan"), got.Cloud.FleetName("small"); f != "rollout-plan" || g != "rollout-small" {
		t.Errorf("the function is %s, the group %s", f, g)
	}
}

func TestTheFileGoesBeforeTheDefaultsOfItsCloud(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/cloud.toml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseDeployment("rollout.toml", src)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultDeployment()
	want.Bucket = "acme-batches"
	want.Health = DefaultCloudHealth()
	want.Health.SkewBudget = Duration(time.Second)
	want.Worker.DrainBudget = Duration(time.Minute)
	want.Secrets = []string{"api-token", "hf-token"}
	want.Pools = []Pool{{Name: "small", Model: "org/model"}, {Name: "large", Model: "org/large"}}
	want.Cloud = Cloud{
		Provider: "aws", Region: "eu-central-1", Name: "acme",
		S3: S3{"acme-batches", "team-a/llm/"}, DynamoDB: DynamoDB{"acme.documents"}, SQS: SQS{"acme-llm-"},
		Secrets: CloudSecrets{[]string{"api-token"}, "acme/llm/"},
		Fleet:   Fleet{2, 10, Duration(90 * time.Second), []string{"g6e.2xlarge"}, "registry.example:5000/vllm@sha256:0123456789abcdef"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	wantCompact(t, src, got)
}

func TestALaptopHasNoCloud(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("rollout.toml", []byte(head))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(DefaultDeployment(), got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestAnEngineMayUseASecretOfTheCloud(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("rollout.toml", []byte(head+cloudHead+"secrets.allowlist = ['key']\n[engine]\nurl = 'https://h/v1'\nsecret = 'key'\n"))
	if err != nil || len(got.Secrets) != 1 || got.Secrets[0] != "key" {
		t.Errorf("secrets %q, %v", got.Secrets, err)
	}
}

func TestCloudProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, src, want string }{
		{"no provider", "[cloud.s3]\nbucket = 'acme'", `d.toml:2: cloud.provider: missing: name the provider, such as provider = "aws", or remove [cloud] for an installation on this machine`},
		{"a provider of a later version", "cloud.provider = 'gcp'", `d.toml:2: cloud.provider: "gcp" is not a valid provider: use aws`},
		{"a provider misspelt", "cloud.provider = 'AWS'", `d.toml:2: cloud.provider: "AWS" is not a valid provider; did you mean "aws"?`},
		{"a provider that is none", "cloud.provider = 3", `d.toml:2: cloud.provider: must be a string in quotes, is 3`},
		{"no table", "cloud = 'aws'", `d.toml:2: cloud: must be a table, is the string "aws"`},
		{"two providers", cloudHead + "gcs.bucket = 'b'", `d.toml:6: cloud.gcs: is a table of the provider "gcp", and this installation is at "aws": remove it`},
		{"the provider's tables nested", cloudHead + "aws.s3.bucket = 'b'", `d.toml:6: cloud.aws: a provider's tables stand in [cloud] itself, as [cloud.s3] does: move them there`},
		{"nothing but the provider", "cloud.provider = 'aws'", `d.toml:2: cloud.region: missing: name the region, such as "us-east-1"` + "\n" +
			`d.toml:2: cloud.s3.bucket: missing: name the bucket; its name must be unique among all buckets of S3`},
		{"a name that is too short for a table", cloudHead + "name = 'ab'", `d.toml:6: cloud.name: "ab" is also the table's name, which has 3 letters or more: use a longer one, or name the table in [cloud.dynamodb]`},
		{"two buckets", "bucket = 'b'\n" + cloudHead, "d.toml:2: bucket: cloud.s3.bucket names the bucket: remove this one"},
		{"an address as bucket", strings.Replace(cloudHead, "acme-rollout", "192.168.0.1", 1), `d.toml:5: cloud.s3.bucket: "192.168.0.1" is not a valid bucket name: use 3 to 63 of a-z, 0-9 and -, and begin and end with a letter or digit`},
		{"a bucket of S3's", strings.Replace(cloudHead, "acme-rollout", "acme-s3alias", 1), `d.toml:5: cloud.s3.bucket: "acme-s3alias" begins or ends with characters that S3 reserves: choose another name`},
		{"a prefix without end", cloudHead + "s3.prefix = 'team-a'", `d.toml:6: cloud.s3.prefix: must end with "/", is "team-a"`},
		{"a prefix from the root", cloudHead + "s3.prefix = '/a/'", `d.toml:6: cloud.s3.prefix: "/a/" is not a valid prefix: write folders of letters, digits, -, _ and ., such as "team-a/"`},
		{"a prefix that goes up", cloudHead + "s3.prefix = 'a/../b/'", `d.toml:6: cloud.s3.prefix: "a/../b/" is not a valid prefix: write folders of letters, digits, -, _ and ., such as "team-a/"`},
		{"a prefix for all policies", cloudHead + "s3.prefix = 'a*/'", `d.toml:6: cloud.s3.prefix: "a*/" is not a valid prefix: write folders of letters, digits, -, _ and ., such as "team-a/"`},
		{"a prefix among prompts", cloudHead + "s3.prefix = 'prompts/b/'", `d.toml:6: cloud.s3.prefix: "prompts/" is a folder that rollout makes below the prefix: use other names`},
		{"no types", cloudHead + "fleet.instance_types = []", `d.toml:6: cloud.fleet.instance_types: must be 1 to 40 types, are 0`},
		{"a misspelt key", cloudHead + "s3.buckett = 'b'", `d.toml:6: cloud.s3.buckett: unknown key; did you mean bucket?`},
		{"a misplaced key", cloudHead + "max_machines = 3", `d.toml:6: cloud.max_machines: unknown key; did you mean cloud.fleet.max_machines?`},
		{"timings of a laptop", cloudHead + "[health]\nself_fence_timeout = '5s'", "d.toml:6: health.heartbeat_interval: must be shorter than self_fence_timeout (5s), is 10s: a worker would fence itself between two heartbeats"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseDeployment("d.toml", []byte(head+c.src))
			wantProblem(t, err, c.want)
		})
	}
}

func TestCompactKeepsWhatAConfigSays(t *testing.T) {
	t.Parallel()
	src := head + cloudHead + "# a remark\n\n[engine]\nurl = \"http://h/v1\" # 'x'\n[defaults]\nschema_version = 1\nsampling.stop = [\"\"\"\n# no remark\n\"\"\"]\n"
	text, err := Compact([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	const want = `schema_version = 1
[cloud]
provider = "aws"
region = "us-east-1"
[cloud.s3]
bucket = "acme-rollout"
[defaults]
schema_version = 1
[defaults.sampling]
stop = ["# no remark\n"]
[engine]
url = "http://h/v1"
`
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if _, err := Compact([]byte("a = ")); err == nil || !strings.Contains(err.Error(), "not valid TOML") {
		t.Errorf("of what is no TOML: %v", err)
	}
}

// wantCompact checks that the compact form of src is of the deployment, too.
func wantCompact(t *testing.T, src []byte, want Deployment) {
	t.Helper()
	text, err := Compact(src)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseDeployment("compact.toml", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s\n%s", d, text)
	}
}
