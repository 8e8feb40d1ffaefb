package emulators

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/gcp/fakeproject"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/gcp/fakesecrets"
	"rollout/localstack/gcp/gateway"
	"rollout/shared/gcp"
)

// secretText is the value of the deployment's secret.
const secretText = "a-secret-text"

// doctorFixture is an installation on emulators that `rollout cloud doctor` checks with
// the endpoints and credentials of the environment.
type doctorFixture struct {
	rollout CommandLine
	storage Storage
	way     *gateway.Gateway
	project *fakeproject.Project
	text    string // the config
	env     []string
}

func newDoctorFixture(t *testing.T) doctorFixture {
	t.Helper()
	f := doctorFixture{rollout: BuildRollout(t), storage: StartStorage(t, fakegcs.Options{})}
	const host = "secretmanager.googleapis.com"
	way, end, err := gateway.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	certificate, err := way.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	secrets, end, err := fakesecrets.Start(grpc.Creds(credentials.NewTLS(certificate)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	way.Lead(host, secrets.Address())
	secrets.Set("test-project", "rollout-hf-token", []byte(secretText))
	_, metadata, end, err := fakemetadata.Start(machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	f.way = way
	f.project = healthyProject()
	project, end, err := fakeproject.Start(f.project, way.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	for _, host := range fakeproject.Hosts {
		way.Lead(host, project)
	}
	f.storage.SetNotifications(f.storage.Bucket, fakegcs.NotificationConfig{ID: "1", Prefix: "prompts/",
		Topic: "//pubsub.googleapis.com/projects/test-project/topics/rollout-objects", Events: []string{"OBJECT_FINALIZE"}})
	f.env = append(way.Environment(),
		gcp.StorageEmulatorVariable+"="+f.storage.Address,
		gcp.FirestoreEmulatorVariable+"="+fakefirestore.Start(t, fakefirestore.Options{}).Address,
		gcp.PubSubEmulatorVariable+"="+fakepubsub.Start(t, fakepubsub.Options{Absent: fakepubsub.Queue(5)}).Address,
		"GCE_METADATA_HOST="+metadata)
	f.text = "schema_version = 1\n[cloud]\nprovider = \"gcp\"\nproject = \"test-project\"\nregion = \"europe-west4\"\n" +
		"secrets.allowlist = [\"hf-token\"]\n[cloud.gcs]\nbucket = \"" + f.storage.Bucket + "\"\n" +
		"[cloud.fleet]\nengine_image = \"" + startRegistry(t) + "/vllm:1\"\n" +
		"[[pool]]\nname = \"small\"\nmodel = \"m\"\ninstance_types = [\"g2-standard-8\", \"g2-standard-12\"]\n" +
		"[[pool]]\nname = \"task\"\nmodel = \"n\"\nmachines = \"cloud-run\"\n"
	return f
}

// healthyProject is a project in which a deployment works.
func healthyProject() *fakeproject.Project {
	const pubsub, storage = "serviceAccount:service-27@gcp-sa-pubsub.iam.gserviceaccount.com",
		"serviceAccount:service-27@gs-project-accounts.iam.gserviceaccount.com"
	p := &fakeproject.Project{
		ID: "test-project", Number: "27", Region: "europe-west4", AllGPUs: 4, AllCPUs: 32, CloudRunGPUs: 3,
		Quotas: map[string]float64{"PREEMPTIBLE_NVIDIA_L4_GPUS": 2, "CPUS": 24, "N2_CPUS": 24, "N2D_CPUS": 0, "C2_CPUS": 8,
			"PREEMPTIBLE_CPUS": 0},
		MachineTypes: map[string][]string{"europe-west4-a": {"g2-standard-8", "g2-standard-12", "n2-standard-8"},
			"europe-west4-b": {"g2-standard-8"}, "us-central1-a": {"g2-standard-8"}},
		Policies: map[string]string{"gcp.resourceLocations": `[{"values":{"allowedValues":["in:europe-locations"]}}]`},
		Grants: map[string]map[string][]string{
			"topics/rollout-objects": {"roles/pubsub.publisher": {storage}},
			"serviceAccounts/rollout-push@test-project.iam.gserviceaccount.com": {
				"roles/iam.serviceAccountTokenCreator": {pubsub}},
		},
	}
	sources := []string{"coordinate", "work-small", "urgent-small", "work-task", "urgent-task"}
	for _, topic := range append([]string{"tasks"}, sources...) {
		p.Grants["topics/rollout-"+topic+"-dead"] = map[string][]string{"roles/pubsub.publisher": {pubsub}}
	}
	for _, name := range append([]string{"objects", "submit", "plan", "finalize", "machines"}, sources...) {
		p.Grants["subscriptions/rollout-"+name] = map[string][]string{"roles/pubsub.subscriber": {"user:a", pubsub}}
	}
	return p
}

// startRegistry starts a registry that has every container image, and returns its host.
func startRegistry(t *testing.T) string {
	t.Helper()
	registry := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(registry.Close)
	return strings.TrimPrefix(registry.URL, "http://")
}

// doctor runs `rollout cloud doctor` with a config.
func (f doctorFixture) doctor(t *testing.T, text string, set []string, args ...string) CommandResult {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rollout.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f.rollout.Run(t.Context(), t, append(f.env[:len(f.env):len(f.env)], set...),
		append([]string{"cloud", "doctor", "--provider", "gcp", "--config", path}, args...)...)
}

func (f doctorFixture) wantHealthy(t *testing.T) {
	t.Helper()
	got := f.doctor(t, f.text, nil)
	varying := regexp.MustCompile(`(?m) +\d+ ms|total \d+ ms|(http://)?127.0.0.1:\d+|\d+ GPUs`)
	out := varying.ReplaceAllString(got.Stdout, " …")
	const want = `✓ credentials …  the machine's account
✓ clock …  within 2s of Google Cloud's
✓ apis …  12 APIs enabled
✓ gpu_quota …  3 L4 of Cloud Run in europe-west4; GPUS_ALL_REGIONS 4, PREEMPTIBLE_NVIDIA_L4_GPUS 2
✓ cpu_quota …  no pool trains
✓ machine_types …  g2-standard-8 in a, b; g2-standard-12 in a
✓ org_policies …  4 constraints of the organisation, none refuses
✓ silent_grants …  18 grants to accounts of Google's
✓ notification …  uploads to prompts/ go to the topic rollout-objects
✓ engine_image …   …/vllm:1
✓ reachability …   …
✓ auth …  the machine's account
✓ object_store …
✓ queue …
✓ secret_store …  hf-token
✓ compute_hint …   …, 4520031799277581759
✓ content_id_roundtrip …
17 pass, 0 fail —  …
`
	if out != want || got.Stderr != "" || got.ExitCode != 0 {
		t.Errorf("exit code %d, stderr %q\n%s\nwant\n%s", got.ExitCode, got.Stderr, out, want)
	}
	wantNames(t, f.storage)
	if refused := f.way.Refused(); len(refused) > 0 {
		t.Errorf("requests went to %q", refused)
	}
}

func TestDoctorNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := newDoctorFixture(t)
	t.Run("healthy", f.wantHealthy)
	const nowhere = "127.0.0.1:1"
	for name, c := range map[string]struct {
		text  string
		set   []string
		fails map[string]string // failing checks, with a part of their error
	}{
		"without a bucket": {text: strings.Replace(f.text, f.storage.Bucket, "missing-bucket", 1), fails: map[string]string{
			"object_store": "cloud.gcs.bucket",
			"notification": "the bucket missing-bucket tells the topic rollout-objects of no uploads to prompts/"}},
		"without the secret": {text: strings.Replace(f.text, "hf-token", "other", 1),
			fails: map[string]string{"secret_store": "gcloud secrets create rollout-other"}},
		"without allowed secrets": {text: strings.Replace(f.text, `"hf-token"`, "", 1),
			fails: map[string]string{"secret_store": "the allowlist is empty"}},
		"without credentials": {text: f.text, set: []string{"GOOGLE_APPLICATION_CREDENTIALS=/no/such/file"},
			fails: map[string]string{"credentials": "gcloud auth application-default login"}},
		"unreachable storage": {text: f.text, set: []string{gcp.StorageEmulatorVariable + "=http://" + nowhere},
			fails: map[string]string{"reachability": "DNS", "notification": "connection refused"}},
		"unreachable documents": {text: f.text, set: []string{gcp.FirestoreEmulatorVariable + "=" + nowhere},
			fails: map[string]string{"auth": "DNS"}},
		"unreachable queues": {text: f.text, set: []string{gcp.PubSubEmulatorVariable + "=" + nowhere},
			fails: map[string]string{"queue": "DNS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := f.doctor(t, c.text, c.set, "--format", "json")
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
				t.Fatalf("%v in %s, %s", err, got.Stdout, got.Stderr)
			}
			if got.ExitCode != 1 || !strings.Contains(got.Stderr, "checks failed") || report.Summary.Failed != len(c.fails) ||
				report.Summary.Passed+report.Summary.Skipped != 17-len(c.fails) {
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
