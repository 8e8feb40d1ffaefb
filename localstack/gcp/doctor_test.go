package emulators

import (
	"encoding/json"
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
	f.env = append(way.Environment(),
		gcp.StorageEmulatorVariable+"="+f.storage.Address,
		gcp.FirestoreEmulatorVariable+"="+fakefirestore.Start(t, fakefirestore.Options{}).Address,
		gcp.PubSubEmulatorVariable+"="+fakepubsub.Start(t, fakepubsub.Options{Absent: fakepubsub.Queue(5)}).Address,
		"GCE_METADATA_HOST="+metadata)
	f.text = "schema_version = 1\n[cloud]\nprovider = \"gcp\"\nproject = \"test-project\"\nregion = \"europe-west4\"\n" +
		"secrets.allowlist = [\"hf-token\"]\n[cloud.gcs]\nbucket = \"" + f.storage.Bucket + "\"\n"
	return f
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
	varying := regexp.MustCompile(`(?m) +\d+ ms|total \d+ ms|http://127.0.0.1:\d+|\d+ GPUs`)
	out := varying.ReplaceAllString(got.Stdout, " …")
	const want = `✓ reachability …   …
✓ auth …  the machine's account
✓ object_store …
✓ queue …
✓ secret_store …  hf-token
✓ compute_hint …   …, 4520031799277581759
✓ content_id_roundtrip …
7 pass, 0 fail —  …
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
			"object_store": "cloud.gcs.bucket", "content_id_roundtrip": "cloud.gcs.bucket"}},
		"without the secret": {text: strings.Replace(f.text, "hf-token", "other", 1),
			fails: map[string]string{"secret_store": "gcloud secrets create rollout-other"}},
		"without allowed secrets": {text: strings.Replace(f.text, `"hf-token"`, "", 1),
			fails: map[string]string{"secret_store": "the allowlist is empty"}},
		"without credentials": {text: f.text, set: []string{"GOOGLE_APPLICATION_CREDENTIALS=/no/such/file"},
			fails: map[string]string{"auth": "gcloud auth application-default login",
				"secret_store": "gcloud auth application-default login"}},
		"unreachable storage": {text: f.text, set: []string{gcp.StorageEmulatorVariable + "=http://" + nowhere},
			fails: map[string]string{"reachability": "DNS", "object_store": "DNS", "content_id_roundtrip": "DNS"}},
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
					Passed int `json:"pass_count"`
					Failed int `json:"fail_count"`
				}
			}
			if err := json.Unmarshal([]byte(got.Stdout), &report); err != nil {
				t.Fatalf("%v in %s, %s", err, got.Stdout, got.Stderr)
			}
			if got.ExitCode != 1 || !strings.Contains(got.Stderr, "checks failed") || report.Summary.Failed != len(c.fails) ||
				report.Summary.Passed != 7-len(c.fails) {
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
