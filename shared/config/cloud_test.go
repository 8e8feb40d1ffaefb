package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const cloudHead = "[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\ns3.bucket = 'acme-rollout'\n"

func TestCloudSetsDefaultsOfItsProvider(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("rollout.toml", []byte(head+cloudHead))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultDeployment()
	want.Bucket = "acme-rollout"
	want.Health = Health{
		Duration(10 * time.Second),
		Duration(40 * time.Second),
		Duration(time.Minute),
		Duration(2 * time.Second),
	}
	want.Worker.DrainBudget = Duration(time.Minute)
	want.Cloud = Cloud{
		Provider: "aws", Region: "us-east-1", Name: "rollout",
		S3: S3{
			Bucket: "acme-rollout",
		}, DynamoDB: DynamoDB{"rollout"}, SQS: SQS{"rollout-"}, Secrets: CloudSecrets{Prefix: "rollout/"},
		Fleet: Fleet{
			8,
			4,
			Duration(5 * time.Minute),
			Duration(time.Minute),
			[]string{"g6.xlarge", "g6.2xlarge", "g6.4xlarge", "g6.8xlarge", "gr6.4xlarge",
				"g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g6e.xlarge"},
			"vllm/vllm-openai:v0.21.0-cu129",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if f, g := got.Cloud.FunctionName("plan"), got.Cloud.FleetName("small"); f != "rollout-plan" ||
		g != "rollout-small" {
		t.Errorf("FunctionName = %s, FleetName = %s", f, g)
	}
}

func TestFileOverridesDefaultsOfProvider(t *testing.T) {
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
		Fleet: Fleet{
			2,
			10,
			Duration(90 * time.Second),
			Duration(time.Minute),
			[]string{"g6e.2xlarge"},
			"registry.example:5000/vllm@sha256:0123456789abcdef",
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	wantCompact(t, src, got)
}

func TestDeploymentWithoutCloudIsDefault(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("rollout.toml", []byte(head))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(DefaultDeployment(), got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestEngineMayUseSecretOfCloudAllowlist(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment(
		"rollout.toml",
		[]byte(head+cloudHead+"secrets.allowlist = ['key']\n[engine]\nurl = 'https://h/v1'\nsecret = 'key'\n"),
	)
	if err != nil || len(got.Secrets) != 1 || got.Secrets[0] != "key" {
		t.Errorf("secrets %q, %v", got.Secrets, err)
	}
}

func TestParseDeploymentCloudProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, src, want string }{
		{"no provider", "[cloud.s3]\nbucket = 'acme'",
			`d.toml:2: cloud.provider: missing: name the provider, such as provider = "aws", or remove [cloud] for an ` +
				`installation on this machine`},
		{"unknown provider", "cloud.provider = 'azure'",
			`d.toml:2: cloud.provider: "azure" is not a valid provider: use aws or gcp`},
		{"provider misspelt", "cloud.provider = 'AWS'",
			`d.toml:2: cloud.provider: "AWS" is not a valid provider; did you mean "aws"?`},
		{"provider is a number", "cloud.provider = 3", `d.toml:2: cloud.provider: must be a string in quotes, is 3`},
		{"cloud is a string", "cloud = 'aws'", `d.toml:2: cloud: must be a table, is the string "aws"`},
		{"table of another provider", cloudHead + "gcs.bucket = 'b'",
			`d.toml:6: cloud.gcs: belongs to the provider "gcp", and cloud.provider is "aws": remove it`},
		{"tables nested below the provider", cloudHead + "aws.s3.bucket = 'b'",
			`d.toml:6: cloud.aws: a provider's tables belong directly in [cloud], such as [cloud.s3]: move them there`},
		{"only the provider", "cloud.provider = 'aws'",
			`d.toml:2: cloud.region: missing: name the region, such as "us-east-1"` + "\n" +
				`d.toml:2: cloud.s3.bucket: missing: name the bucket; its name must be unique among all buckets of S3`},
		{"name too short for a table", cloudHead + "name = 'ab'",
			`d.toml:6: cloud.name: "ab" is also the name of the table, which needs at least 3 characters: use a longer ` +
				`one, or name the table in [cloud.dynamodb]`},
		{"two buckets", "bucket = 'b'\n" + cloudHead, "d.toml:2: bucket: cloud.s3.bucket names the bucket: remove this key"},
		{"bucket is an IP address", strings.Replace(cloudHead, "acme-rollout", "192.168.0.1", 1),
			`d.toml:5: cloud.s3.bucket: "192.168.0.1" is not a valid bucket name: use 3 to 63 of a-z, 0-9 and -, and ` +
				`begin and end with a letter or digit`},
		{"bucket name reserved by S3", strings.Replace(cloudHead, "acme-rollout", "acme-s3alias", 1),
			`d.toml:5: cloud.s3.bucket: "acme-s3alias" begins or ends with characters that S3 reserves: choose another name`},
		{"prefix without slash at its end", cloudHead + "s3.prefix = 'team-a'",
			`d.toml:6: cloud.s3.prefix: must end with "/", is "team-a"`},
		{"prefix begins with a slash", cloudHead + "s3.prefix = '/a/'",
			`d.toml:6: cloud.s3.prefix: "/a/" is not a valid prefix: write folders of letters, digits, -, _ and ., ` +
				`such as "team-a/"`},
		{"prefix with a parent folder", cloudHead + "s3.prefix = 'a/../b/'",
			`d.toml:6: cloud.s3.prefix: "a/../b/" is not a valid prefix: write folders of letters, digits, -, _ and ., ` +
				`such as "team-a/"`},
		{"prefix with a wildcard", cloudHead + "s3.prefix = 'a*/'",
			`d.toml:6: cloud.s3.prefix: "a*/" is not a valid prefix: write folders of letters, digits, -, _ and ., ` +
				`such as "team-a/"`},
		{"prefix contains an own folder", cloudHead + "s3.prefix = 'prompts/b/'",
			`d.toml:6: cloud.s3.prefix: "prompts/" is a folder that rollout creates below the prefix: use another name`},
		{"no instance types", cloudHead + "fleet.instance_types = []",
			`d.toml:6: cloud.fleet.instance_types: must list 1 to 40 types, lists 0`},
		{"misspelt key", cloudHead + "s3.buckett = 'b'", `d.toml:6: cloud.s3.buckett: unknown key; did you mean bucket?`},
		{"misplaced key", cloudHead + "max_machines = 3",
			`d.toml:6: cloud.max_machines: unknown key; did you mean cloud.fleet.max_machines?`},
		{"self-fence shorter than the cloud heartbeat", cloudHead + "[health]\nself_fence_timeout = '5s'",
			"d.toml:6: health.heartbeat_interval: must be shorter than self_fence_timeout (5s), is 10s: a worker would " +
				"fence itself between two heartbeats"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseDeployment("d.toml", []byte(head+c.src))
			wantProblem(t, err, c.want)
		})
	}
}

func TestCompactKeepsAllValues(t *testing.T) {
	t.Parallel()
	src := head + cloudHead + "# a comment\n\n[engine]\nurl = \"http://h/v1\" # 'x'\n" +
		"[defaults]\nschema_version = 1\nsampling.stop = [\"\"\"\n# text, not a comment\n\"\"\"]\n"
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
stop = ["# text, not a comment\n"]
[engine]
url = "http://h/v1"
`
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if _, err := Compact([]byte("a = ")); err == nil || !strings.Contains(err.Error(), "not valid TOML") {
		t.Errorf("Compact of invalid TOML: %v", err)
	}
}

// wantCompact checks that the compact form of src parses to the same deployment.
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
