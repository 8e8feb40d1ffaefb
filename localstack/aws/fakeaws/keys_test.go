package fakeaws_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/iam"
)

// What a key of one's own encrypts can only be used with the right to the key.
func TestCallersNeedTheRightsToKeys(t *testing.T) {
	t.Parallel()
	const golden = "../../../infra/aws/stack/testdata/"
	template, err := os.ReadFile(golden + "template.json")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile(golden + "keys.json")
	if err != nil {
		t.Fatal(err)
	}
	emulator := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(emulator.Close)
	for name, want := range map[string]int{"kms:GenerateDataKey": http.StatusOK, "kms:Sign": http.StatusForbidden} {
		at := strings.NewReplacer("eu-central-1", fakeaws.Region, "kms:GenerateDataKey", name)
		roles, err := iam.ReadTemplate([]byte(at.Replace(string(template))), []byte(at.Replace(string(keys))))
		if err != nil {
			t.Fatal(err)
		}
		c, err := fakeaws.Open(fakeaws.Options{Backend: emulator.URL, Roles: &roles,
			Config: "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = \"acme\"\n[cloud.s3]\n" +
				"bucket = \"acme-batches\"\nprefix = \"team-a/\"\n"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, c.URL+"/acme-batches/team-a/work/r/1",
			strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization",
			"AWS4-HMAC-SHA256 Credential=plan/20260101/us-east-1/x/aws4_request, Signature=x")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if denied := strings.Join(c.DeniedRequests(), "\n"); answer.StatusCode != want ||
			(want != http.StatusOK) != strings.Contains(denied, "kms:GenerateDataKey") {
			t.Errorf("with %s, plan's object is answered with %d, want %d: %s", name, answer.StatusCode, want, denied)
		}
	}
}
