package stack_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/config"
)

// policy is what people may do who have a policy of that name, in its region.
func (t template) policy(tt *testing.T, name string) resource {
	tt.Helper()
	return t.physical(tt, "AWS::IAM::ManagedPolicy", "ManagedPolicyName", t.name+"-"+name+"-eu-central-1")
}

// Who looks changes nothing, and who submits and steers is no administrator.
func TestPeopleMayDoWhatTheirCommandsDo(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	look := []string{"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "s3:GetBucketVersioning", "s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket", "s3:ListBucketVersions",
		"sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
	for name, want := range map[string][]string{
		"reader": look,
		"user":   append([]string{"dynamodb:PutItem", "lambda:InvokeFunction", "s3:AbortMultipartUpload", "s3:PutObject", "sqs:SendMessage"}, look...),
	} {
		var may []string
		for _, s := range made.policyOf(made.policy(t, name).id) {
			may = append(may, s.actions...)
			switch {
			case slices.Contains(s.actions, "s3:PutObject"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":acme-batches/team-a/prompts/*") {
					t.Errorf("a %s puts objects to %q", name, s.resources)
				}
			case slices.Contains(s.actions, "dynamodb:PutItem"):
				if got := texts(s.condition.at("ForAllValues:StringLike.dynamodb:LeadingKeys")); !slices.Equal(got, []string{"??"}) {
					t.Errorf("a %s writes documents in %q", name, got)
				}
			case slices.Contains(s.actions, "sqs:SendMessage"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":acme-coordinate") {
					t.Errorf("a %s sends to %q", name, s.resources)
				}
			case slices.Contains(s.actions, "lambda:InvokeFunction"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":function:acme-submit") {
					t.Errorf("a %s calls %q", name, s.resources)
				}
			}
		}
		slices.Sort(may)
		slices.Sort(want)
		if may = slices.Compact(may); !slices.Equal(may, want) {
			t.Errorf("a %s may do %q, want %q", name, may, want)
		}
	}
	for output, policy := range map[string]string{"ReaderPolicy": "reader", "UserPolicy": "user"} {
		if got := tree(made.Outputs[output].(map[string]any)).text("Value"); got != "<"+made.policy(t, policy).id+">" {
			t.Errorf("the output %s is %s", output, got)
		}
	}
}

// IAM takes policies of up to 6,144 characters, without white space.
func TestPoliciesOfPeopleHaveRoomForAnyConfig(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		for range 40 {
			s.Deployment.Pools = append(s.Deployment.Pools, config.Pool{Name: "p" + strings.Repeat("x", len(s.Deployment.Pools)), Model: "m" + strings.Repeat("x", len(s.Deployment.Pools))})
		}
		s.Machines = false
	}))
	for _, p := range made.all("AWS::IAM::ManagedPolicy") {
		text, err := json.Marshal(p.Properties.at("PolicyDocument"))
		if err != nil || len(text) > 6144 {
			t.Errorf("%s has %d characters, %v", p.Properties.text("ManagedPolicyName"), len(text), err)
		}
	}
}

// The policies of a role have room for 10,240 characters, whatever pools a config
// has room for: else CloudFormation refuses a role when half of the stack is there.
func TestRolesHaveRoomForAnyConfig(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Deployment.Pools = nil
		for i := range 40 {
			s.Deployment.Pools = append(s.Deployment.Pools, config.Pool{Name: fmt.Sprintf("p%031d", i), Model: fmt.Sprint(i)})
		}
		s.Machines = false
	}))
	for _, r := range made.all("AWS::IAM::Role") {
		size := 0
		for _, s := range made.policyOf(r.id) {
			text, err := json.Marshal([]any{s.id, s.actions, s.resources, s.condition})
			if err != nil {
				t.Fatal(err)
			}
			const frame = `{"Sid":,"Effect":"Allow","Action":,"Resource":,"Condition":},`
			size += len(frame) + len(strings.NewReplacer(`\u003cAWS::Partition\u003e`, "aws", `\u003cAWS::AccountId\u003e`, "123456789012").Replace(string(text)))
		}
		if size < 500 || size > 10_240 {
			t.Errorf("the policies of %s have %d characters", r.id, size)
		}
	}
}
