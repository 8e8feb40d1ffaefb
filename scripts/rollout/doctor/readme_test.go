package doctor

import (
	"os"
	"regexp"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"rollout/shared/aws/stack"
	"rollout/shared/fault"
)

var action = regexp.MustCompile(`\b[a-z0-9]+:([A-Z]\w+)`)

// Who gives a user what the README lists is not told by the doctor that more
// is needed.
func TestTheReadmeListsWhatTheDoctorMayDo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| what a user does |")
	everybody, _, _ := strings.Cut(table, "\n")
	_, row, found := strings.Cut(table, "\n| doctor |")
	if !found {
		t.Fatal("the README's table of permissions has no row of the doctor's")
	}
	row, _, _ = strings.Cut(row, "\n")
	refused := fault.As(fault.Denied, &smithy.GenericAPIError{Code: "AccessDenied"}, "ask")
	asked := 0
	for _, check := range AWS(&stack.Stack{AWS: awssdk.Config{}}, nil) {
		for _, a := range action.FindAllStringSubmatch(check.Remedy(refused), -1) {
			if asked++; !regexp.MustCompile(`\b` + a[1] + `\b`).MatchString(everybody + row) {
				t.Errorf("%s wants %s, which the README does not list", check.Name, a[0])
			}
		}
	}
	if asked < 10 {
		t.Errorf("the checks' remedies name %d actions", asked)
	}
}
