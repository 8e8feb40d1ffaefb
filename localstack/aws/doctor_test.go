package emulators

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/provision"
	"rollout/shared/aws"
	"rollout/shared/config"
)

// secretText is the value of the deployment's secret.
const secretText = "a-secret-text"

// doctorFixture is a deployment on an emulator that `rollout cloud doctor` checks
// with the credentials and the endpoint of the environment.
type doctorFixture struct {
	Endpoint
	name    string // of the installation
	text    string // the config
	rollout CommandLine
}

func newDoctorFixture(t *testing.T, e Endpoint) doctorFixture {
	t.Helper()
	name := "t" + fresh()
	text := e.Deployment(name, prefix, "hf-token") + "instance_types = [\"g6.xlarge\", \"g6.2xlarge\"]\n" +
		"engine_image = \"" + startRegistry(t) + "/vllm:1\"\n"
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg := e.Config(t.Context(), t)
	if err := provision.Create(t.Context(), cfg, d); err != nil {
		t.Fatal(err)
	}
	if _, err := secretsmanager.NewFromConfig(cfg).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: new(d.Cloud.Secrets.Prefix + "hf-token"), SecretString: new(secretText)}); err != nil {
		t.Fatal(err)
	}
	// Of the account, the emulators know only buckets, tables, queues and secrets.
	front, err := fakeaws.Open(fakeaws.Options{Backend: e.URL, Config: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close)
	for _, p := range d.Pools {
		front.Groups.Make(d.Cloud.FleetName(p.Name), 8, func(*fakeaws.Instance) *exec.Cmd { return exec.Command("true") })
	}
	e.URL = front.URL
	return doctorFixture{e, name, text, BuildRollout(t)}
}

// startRegistry starts a registry that has every container image, and returns its host.
func startRegistry(t *testing.T) string {
	t.Helper()
	registry := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(registry.Close)
	return strings.TrimPrefix(registry.URL, "http://")
}

// doctor runs `rollout cloud doctor` with a config.
func (e doctorFixture) doctor(t *testing.T, text string, set []string, args ...string) CommandResult {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollout.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return e.rollout.Run(t.Context(), t, append(e.Environment(text, e.URL), set...),
		append([]string{"cloud", "doctor", "--provider", "aws", "--config", path}, args...)...)
}

// wantHealthy checks that the doctor reports no problem and leaves no object.
func (e doctorFixture) wantHealthy(t *testing.T) {
	t.Helper()
	got := e.doctor(t, e.text, nil)
	varying := regexp.MustCompile(`(?m) +\d+ ms|total \d+ ms|(http://)?127.0.0.1:\d+|\d+ GPUs`)
	out := strings.ReplaceAll(varying.ReplaceAllString(got.Stdout, " …"), e.name, "NAME")
	const want = `✓ credentials …  arn:aws:iam::000000000000:user/000000000000, by EnvConfigCredentials
✓ clock …  within 2s of AWS's
✓ gpu_quota …  default: 256 vCPUs of L-3819A6DF
✓ machine_types …  g6.xlarge, g6.2xlarge in a, b
✓ machine_image …  ami-0123456789abcdef0
✓ launches …  1 group
✓ notification …  uploads to ` + prefix + `prompts/ invoke NAME-submit
✓ engine_image …   …/vllm:1
✓ reachability …   …
✓ auth …  EnvConfigCredentials
✓ object_store …
✓ queue …
✓ secret_store …  hf-token
✓ compute_hint …   …, not on an EC2 instance
✓ content_id_roundtrip …
15 pass, 0 fail —  …
`
	if out != want || got.Stderr != "" || got.ExitCode != 0 {
		t.Errorf("exit code %d, stderr %q\n%s\nwant\n%s", got.ExitCode, got.Stderr, out, want)
	}
	left, err := aws.NewBucket(e.Config(t.Context(), t), e.Bucket, aws.BucketOptions{}).List(t.Context(), "", "", 10)
	if err != nil || len(left) > 0 {
		t.Errorf("the doctor left the objects %v (%v)", left, err)
	}
}

func TestMiniStackIsHealthyToTheDoctor(t *testing.T) {
	newDoctorFixture(t, RequireExternal(t).MiniStack(t)).wantHealthy(t)
}

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := newDoctorFixture(t, StartKumo(t))
	text := e.text
	t.Run("healthy", e.wantHealthy)
	for name, c := range map[string]struct {
		text  string
		set   []string
		fails map[string]string // failing checks, with a part of their error
	}{
		"without a bucket": {text: strings.Replace(text, e.Bucket, "missing-bucket", 1),
			fails: map[string]string{"notification": "cloud.s3.bucket", "object_store": "cloud.s3.bucket"}},
		"without a table": {text: strings.Replace(text, e.Table, "missing-table", 1),
			fails: map[string]string{"auth": "cloud.dynamodb.table"}},
		"without queues": {text: strings.Replace(text, "[[pool]]", "[cloud.sqs]\nprefix = \"missing-\"\n[[pool]]",
			1), fails: map[string]string{"queue": "cloud.sqs.prefix"}},
		"without the secret": {text: strings.Replace(text, "hf-token", "other", 1),
			fails: map[string]string{"secret_store": "aws secretsmanager create-secret --name"}},
		"without allowed secrets": {text: strings.Replace(text, `"hf-token"`, "", 1),
			fails: map[string]string{"secret_store": "the allowlist is empty"}},
		"without credentials": {text: text, set: []string{"AWS_ACCESS_KEY_ID="},
			fails: map[string]string{"credentials": "sign in"}},
		"unreachable": {text: text, set: []string{"AWS_ENDPOINT_URL=http://127.0.0.1:1"},
			fails: map[string]string{"reachability": "DNS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := e.doctor(t, c.text, c.set, "--format", "json")
			var report struct {
				Checks []struct {
					Name, Status, Error string
					Latency             *int64 `json:"latency_ms"`
				}
				Summary struct {
					Passed  int `json:"pass_count"`
					Failed  int `json:"fail_count"`
					Skipped int `json:"skip_count"`
				}
			}
			if err := json.Unmarshal([]byte(got.Stdout), &report); err != nil {
				t.Fatalf("%v in %s", err, got.Stdout)
			}
			if got.ExitCode != 1 || !strings.Contains(got.Stderr, "checks failed") || report.Summary.Failed != len(c.fails) ||
				report.Summary.Passed+report.Summary.Skipped != 15-len(c.fails) {
				t.Errorf("exit code %d, stderr %q, %+v", got.ExitCode, got.Stderr, report.Summary)
			}
			for _, k := range report.Checks {
				want, fails := c.fails[k.Name]
				if (k.Status == "fail") != fails || fails && !strings.Contains(k.Error, want) || k.Latency == nil {
					t.Errorf("%+v, want %q", k, want)
				}
			}
			if strings.Contains(got.Stdout+got.Stderr, secretText) {
				t.Error("the secret is shown")
			}
		})
	}
}
