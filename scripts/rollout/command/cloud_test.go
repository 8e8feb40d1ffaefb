package command_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

const cloudConfig = "schema_version = 1\n" +
	"[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\ns3.bucket = \"acme-rollout\"\n"

func TestCloudCommandsNeedTheirConfig(t *testing.T) {
	t.Parallel()
	laptop, cloud := t.TempDir(), t.TempDir()
	write(t, filepath.Join(laptop, "rollout.toml"), "schema_version = 1\n")
	write(t, filepath.Join(cloud, "rollout.toml"), cloudConfig)
	bad := filepath.Join(t.TempDir(), "bad.toml")
	write(t, bad, "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregionn = \"us-east-1\"\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--cloud", "aws", "--dir", t.TempDir()}, "rollout.toml (name the deployed config with --dir"},
		{[]string{"status", "--cloud", "aws", "--dir", laptop},
			"rollout.toml has no [cloud]: it describes an installation on this machine (name the deployed config with --dir"},
		{[]string{"status", "--cloud", "azure", "--dir", cloud}, `"azure" is not a provider of this version`},
		{[]string{"status", "--cloud", "gcp", "--dir", cloud}, "describes an installation at aws, not gcp"},
		{[]string{"status", "--dir", cloud}, "rollout.toml describes an installation in a cloud (add --cloud aws"},
		{[]string{"up", "--dir", cloud}, "rollout.toml describes an installation in a cloud (add --cloud aws"},
		{[]string{"clean", "--cloud", "aws"}, "unknown flag: --cloud"},
		{[]string{"cloud", "doctor", "--config", filepath.Join(cloud, "rollout.toml")}, "--provider is missing"},
		{[]string{"cloud", "doctor", "--provider", "azure", "--config", filepath.Join(cloud, "rollout.toml")},
			`"azure" is not a provider of this version`},
		{[]string{"cloud", "doctor", "--provider", "aws", "--config", filepath.Join(laptop, "rollout.toml")},
			"rollout.toml has no [cloud]: it describes an installation on this machine (name the deployed config with --config"},
		{[]string{"cloud", "doctor", "--provider", "aws", "--config", filepath.Join(cloud, "none.toml")},
			"none.toml (name the deployed config with --config"},
		{[]string{"cloud", "doctor", "--provider", "aws", "--config", bad}, "cloud.regionn: unknown key"},
		{[]string{"cloud", "doctor", "--provider", "aws", "--format", "xml"}, `--format "xml" is unknown: use human or json`},
		{[]string{"cloud", "physician"}, `unknown command "physician"`},
	} {
		check(t, rollout(t.Context(), c.args...), 2, "", c.want)
	}
}

// Error messages of a cloud rarely say what to do.
func TestCloudErrorsSuggestTheDoctor(t *testing.T) {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type": "OptInRequired", "message": "no subscription"}`) // the test sees what is missing
	}))
	t.Cleanup(failing.Close)
	t.Setenv("AWS_ENDPOINT_URL", failing.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
	dir := t.TempDir()
	file := filepath.Join(dir, "rollout.toml")
	write(t, file, cloudConfig)
	for _, args := range [][]string{{"status"}, {"results", "x"}, {"pause", "x"}, {"explain", "x"}} {
		check(t, rollout(t.Context(), append(args, "--cloud", "aws", "--dir", dir)...), 1, "",
			"no subscription (run `rollout cloud doctor --provider aws --config "+file+"` to find the cause)\n")
	}
}

// Stale credentials need a new sign-in, missing permissions a change of the user's policy.
func TestDoctorDistinguishesStaleCredentialsFromMissingPermissions(t *testing.T) {
	const signIn, permit = "sign in again", "let this user do"
	for code, want := range map[string]string{
		"ExpiredTokenException":       signIn,
		"InvalidSignatureException":   signIn,
		"UnrecognizedClientException": signIn,
		"AccessDeniedException":       permit,
	} {
		failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type": "`+code+`", "message": "no"}`) // the test sees what is missing
		}))
		t.Setenv("AWS_ENDPOINT_URL", failing.URL)
		t.Setenv("AWS_ACCESS_KEY_ID", "key")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		file := filepath.Join(t.TempDir(), "rollout.toml")
		write(t, file, cloudConfig)
		got := rollout(t.Context(), "cloud", "doctor", "--provider", "aws", "--config", file)
		failing.Close()
		_, auth, _ := strings.Cut(got.out, "auth ")
		auth, _, _ = strings.Cut(auth, "object_store")
		if got.code != 1 || !strings.Contains(auth, want) || strings.Contains(got.out+got.err, "the-secret") {
			t.Errorf("%s: exit code %d, wanting %q:\n%s", code, got.code, want, got.out)
		}
	}
}
