package doctor

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"rollout/shared/aws"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

var action = regexp.MustCompile(`\b[a-z0-9]+:([A-Z]\w+)`)

// TestReadmeListsActionsOfDoctor checks that the README's policies cover every
// action that the doctor's remedies name.
func TestReadmeListsActionsOfDoctor(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../infra/aws/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| to use | attach")
	_, row, found := strings.Cut(table, "\n| the doctor's check of secrets | one of them, and ")
	if !found {
		t.Fatal("the README's table of policies lacks the doctor's row")
	}
	row, _, _ = strings.Cut(row, "\n")
	policies := managedPolicy(t, "acme-reader-eu-central-1") + managedPolicy(t, "acme-user-eu-central-1")
	refused := fault.WithKind(fault.Denied, &smithy.GenericAPIError{Code: "AccessDenied"}, "ask")
	asked := 0
	for _, check := range Checks(&aws.Stack{AWS: awssdk.Config{}}, nil, poolcheck.Models{}) {
		for _, a := range action.FindAllStringSubmatch(check.Remedy(refused), -1) {
			if asked++; !regexp.MustCompile(`\b` + a[1] + `\b`).MatchString(row + policies) {
				t.Errorf("%s names %s, which is missing from the README and from the policies of users", check.Name, a[0])
			}
		}
	}
	if asked < 10 {
		t.Errorf("the checks' remedies name %d actions, want at least 10", asked)
	}
}

// managedPolicy returns the deployed text of the policy.
func managedPolicy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../infra/aws/stack/testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Resources map[string]struct {
			Properties struct {
				ManagedPolicyName string
				PolicyDocument    json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	for _, r := range template.Resources {
		if r.Properties.ManagedPolicyName == name {
			return string(r.Properties.PolicyDocument)
		}
	}
	t.Fatalf("the template lacks the policy %s", name)
	return ""
}
