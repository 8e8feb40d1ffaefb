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

// policy returns the managed policy of that name.
func (t template) policy(tt *testing.T, name string) resource {
	tt.Helper()
	return t.physical(tt, "AWS::IAM::ManagedPolicy", "ManagedPolicyName", t.name+"-"+name+"-eu-central-1")
}

// The reader policy allows no changes, and the user policy only what submit,
// pause, resume, stop and model cache need.
func TestManagedPoliciesAllowOnlyWhatCommandsNeed(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	look := []string{
		"dynamodb:BatchGetItem",
		"dynamodb:GetItem",
		"dynamodb:Query",
		"s3:GetBucketVersioning",
		"s3:GetObject",
		"s3:GetObjectVersion",
		"s3:ListBucket",
		"s3:ListBucketVersions",
		"sqs:GetQueueAttributes",
		"sqs:GetQueueUrl",
	}
	for name, want := range map[string][]string{
		"reader": look,
		"user": append([]string{
			"dynamodb:PutItem",
			"lambda:InvokeFunction",
			"s3:AbortMultipartUpload",
			"s3:PutObject",
			"sqs:SendMessage",
		}, look...),
	} {
		var may []string
		for _, s := range made.policyOf(made.policy(t, name).id) {
			may = append(may, s.actions...)
			switch {
			case slices.Contains(s.actions, "s3:PutObject"):
				const bucket = ":acme-batches/team-a/" // uploads, the guidance that is promoted, and copies of models
				if len(s.resources) != 3 || !strings.HasSuffix(s.resources[0], bucket+"models/*") ||
					!strings.HasSuffix(s.resources[1], bucket+"prompts/*") ||
					!strings.HasSuffix(s.resources[2], bucket+"runs/*/guidance/*") {
					t.Errorf("a %s may put objects to %q", name, s.resources)
				}
			case slices.Contains(s.actions, "dynamodb:PutItem"):
				if got := s.partitions(); !slices.Equal(got, []string{"??"}) {
					t.Errorf("a %s may write documents in %q", name, got)
				}
			case slices.Contains(s.actions, "sqs:SendMessage"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":acme-coordinate") {
					t.Errorf("a %s may send to %q", name, s.resources)
				}
			case slices.Contains(s.actions, "lambda:InvokeFunction"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":function:acme-submit") {
					t.Errorf("a %s may invoke %q", name, s.resources)
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
		got, want := tree(made.Outputs[output].(map[string]any)).text("Value"), "<"+made.policy(t, policy).id+">"
		if got != want {
			t.Errorf("the output %s is %s, want %s", output, got, want)
		}
	}
}

// IAM accepts managed policies of up to 6,144 characters without white space.
func TestManagedPoliciesStayWithinIAMLimit(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		for range 40 {
			n := len(s.Deployment.Pools)
			s.Deployment.Pools = append(s.Deployment.Pools, config.Pool{
				Name:  "p" + strings.Repeat("x", n),
				Model: "m" + strings.Repeat("x", n),
			})
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

// IAM accepts inline policies of up to 10,240 characters a role. They must fit
// with as many pools as a config has room for: otherwise CloudFormation fails in
// the middle of a deployment.
func TestRolesStayWithinIAMLimit(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, func(s *stack.Settings) {
		s.Deployment.Pools = nil
		for i := range 40 {
			pool := config.Pool{Name: fmt.Sprintf("p%031d", i), Model: fmt.Sprint(i)}
			s.Deployment.Pools = append(s.Deployment.Pools, pool)
		}
		s.Machines = false
	}))
	evaluate := strings.NewReplacer(
		`\u003cAWS::Partition\u003e`, "aws",
		`\u003cAWS::AccountId\u003e`, "123456789012",
	)
	for _, r := range made.all("AWS::IAM::Role") {
		size := 0
		for _, s := range made.policyOf(r.id) {
			text, err := json.Marshal([]any{s.id, s.actions, s.resources, s.condition})
			if err != nil {
				t.Fatal(err)
			}
			const frame = `{"Sid":,"Effect":"Allow","Action":,"Resource":,"Condition":},`
			size += len(frame) + len(evaluate.Replace(string(text)))
		}
		if size < 500 || size > 10_240 {
			t.Errorf("the policies of %s have %d characters", r.id, size)
		}
	}
}
