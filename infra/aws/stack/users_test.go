package stack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// policy returns the managed policy of that name.
func (t template) policy(tt *testing.T, name string) resource {
	tt.Helper()
	return t.physical(tt, "AWS::IAM::ManagedPolicy", "ManagedPolicyName", t.name+"-"+name+"-eu-central-1")
}

// The actions of the doctor's looks at the account, and of the commands in the README's table
// of troubles.
var (
	accountActions = []string{
		"autoscaling:DescribeAutoScalingGroups",
		"ec2:DescribeInstanceTypeOfferings",
		"s3:GetBucketNotification",
		"servicequotas:GetServiceQuota",
		"ssm:GetParameter",
	}
	troubleActions = map[string][]string{
		"aws autoscaling describe-scaling-activities": {"autoscaling:DescribeScalingActivities"},
		"aws ec2 get-console-output":                  {"ec2:GetConsoleOutput"},
		"aws logs tail":                               {"logs:FilterLogEvents"},
		"aws sqs receive-message":                     {"sqs:ReceiveMessage"},
		"the CloudWatch dashboard":                    {"cloudwatch:GetDashboard", "cloudwatch:GetMetricData"},
	}
)

// A command that is added to the table needs its actions in the policies.
func TestPoliciesKnowTheCommandsOfTheTableOfTroubles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Troubles\n")
	table, _, _ = strings.Cut(table, "\n## ")
	found := map[string]bool{}
	for _, command := range regexp.MustCompile("aws [a-z0-9]+ [a-z-]+|the CloudWatch dashboard").FindAllString(table, -1) {
		found[command] = true
		if troubleActions[command] == nil {
			t.Errorf("the table has %q, whose actions are not in the policies", command)
		}
	}
	for command := range troubleActions {
		if !found[command] {
			t.Errorf("the table lacks %q, and the policies have its actions", command)
		}
	}
}

// Who may call the API may do nothing else. With a token it takes no permission.
func TestApiPolicyAllowsCallsByTheURLAlone(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	conditions := map[string]string{
		"lambda:InvokeFunctionUrl": `{"StringLike":{"lambda:FunctionUrlAuthType":"AWS_IAM"}}`,
		"lambda:InvokeFunction":    `{"Bool":{"lambda:InvokedViaFunctionUrl":"true"}}`,
	}
	statements := made.policyOf(made.policy(t, "api").id)
	for _, s := range statements {
		condition, err := json.Marshal(s.condition)
		if err != nil || len(s.actions) != 1 || len(s.resources) != 1 ||
			!strings.HasSuffix(s.resources[0], ":function:acme-api") || string(condition) != conditions[s.actions[0]] {
			t.Errorf("the policy allows %q of %q with %s (%v)", s.actions, s.resources, condition, err)
		}
	}
	if len(statements) != len(conditions) {
		t.Errorf("the policy has %d statements, want %d", len(statements), len(conditions))
	}
	open := synth(t, settings(t, func(s *stack.Settings) { s.Deployment.Secrets = []string{"api-token"} }))
	for _, p := range open.all("AWS::IAM::ManagedPolicy") {
		if name := p.Properties.text("ManagedPolicyName"); strings.Contains(name, "-api-") {
			t.Errorf("with a token there is the policy %s", name)
		}
	}
}

// The reader policy allows no changes, and the user policy only what submit, pause, resume,
// stop, model cache and the pruning of snapshots need in addition, and what the doctor tries.
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
	look = append(look, accountActions...)
	for _, actions := range troubleActions {
		look = append(look, actions...)
	}
	for name, want := range map[string][]string{
		"reader": look,
		"user": {
			"dynamodb:DeleteItem",
			"dynamodb:PutItem",
			"lambda:InvokeFunction",
			"s3:AbortMultipartUpload",
			"s3:DeleteObject",
			"s3:GetObject",
			"s3:GetObjectVersion",
			"s3:PutObject",
			"sqs:ChangeMessageVisibility",
			"sqs:DeleteMessage",
			"sqs:GetQueueUrl",
			"sqs:ReceiveMessage",
			"sqs:SendMessage",
		},
	} {
		var may []string
		for _, s := range made.policyOf(made.policy(t, name).id) {
			may = append(may, s.actions...)
			switch {
			case slices.Contains(s.actions, "s3:DeleteObject"): // what the doctor makes, and pruned snapshots
				prefix := ":acme-batches/team-a/cas/*"
				if slices.Contains(s.actions, "s3:PutObject") {
					prefix = ":acme-batches/team-a/pending/doctor-*"
				}
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], prefix) {
					t.Errorf("a %s may delete %q", name, s.resources)
				}
			case name == "user" && slices.Contains(s.actions, "s3:GetObject"):
				t.Errorf("the user policy repeats the reader's right to get %q", s.resources)
			case slices.Contains(s.actions, "sqs:DeleteMessage"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":acme-doctor") {
					t.Errorf("a %s may delete messages of %q", name, s.resources)
				}
			case slices.Contains(s.actions, "sqs:ReceiveMessage"):
				if len(s.resources) != 1 || !strings.HasSuffix(s.resources[0], ":acme-*-dead") {
					t.Errorf("a %s may receive messages of %q", name, s.resources)
				}
			case slices.Contains(s.actions, "ec2:GetConsoleOutput"):
				if condition, err := json.Marshal(s.condition); err != nil ||
					string(condition) != `{"StringLike":{"aws:ResourceTag/rollout":"acme"}}` {
					t.Errorf("a %s may read consoles with %s (%v)", name, condition, err)
				}
			case slices.Contains(s.actions, "s3:PutObject"):
				const bucket = ":acme-batches/team-a/" // uploads, the guidance that is promoted, and copies of models
				if len(s.resources) != 3 || !strings.HasSuffix(s.resources[0], bucket+"models/*") ||
					!strings.HasSuffix(s.resources[1], bucket+"prompts/*") ||
					!strings.HasSuffix(s.resources[2], bucket+"runs/*/guidance/*") {
					t.Errorf("a %s may put objects to %q", name, s.resources)
				}
			case slices.Contains(s.actions, "dynamodb:PutItem"):
				if got := s.partitions(); !slices.Equal(got, []string{"??", "content/"}) {
					t.Errorf("a %s may write documents in %q", name, got)
				}
			case slices.Contains(s.actions, "dynamodb:DeleteItem"):
				if got := s.partitions(); !slices.Equal(got, []string{"snapshot/", "content/"}) {
					t.Errorf("a %s may delete documents in %q", name, got)
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

// longest sets the longest names, keys of all parts and a long prefix, and adds pools whose
// images are those of so many parameters.
func longest(parameters int) func(*stack.Settings) {
	return func(s *stack.Settings) {
		withKeys(s)
		s.Bucket, s.Identity.Prefix = stack.Existing, strings.Repeat("i", 32)
		c := &s.Deployment.Cloud
		c.Name = strings.Repeat("n", 10)
		c.SQS.Prefix, c.DynamoDB.Table = c.Name+"-", c.Name
		c.S3.Bucket, c.S3.Prefix = strings.Repeat("b", 63), strings.Repeat("p", 49)+"/"
		for i := range parameters {
			pool := config.Pool{Name: fmt.Sprintf("p%031d", i), Model: fmt.Sprint(i)}
			pool.AMI = fmt.Sprintf("/acme/gpu/image-%d", i)
			s.Deployment.Pools = append(s.Deployment.Pools, pool)
		}
	}
}

// IAM accepts managed policies of up to 6,144 characters without white space. Check knows
// their sizes before the template is made.
func TestManagedPoliciesStayWithinIAMLimit(t *testing.T) {
	t.Parallel()
	for partition, change := range map[string]func(*stack.Settings){
		"aws":    longest(10),
		"aws-cn": func(s *stack.Settings) { s.Deployment.Cloud.Region = "cn-north-1" },
	} {
		s := settings(t, change)
		made, sizes := synth(t, s), stack.PolicySizes(s)
		evaluate := strings.NewReplacer("<AWS::Partition>", partition, "<AWS::AccountId>", "123456789012")
		for output, size := range sizes {
			id := strings.Trim(tree(made.Outputs[output].(map[string]any)).text("Value"), "<>")
			text := evaluate.Replace(string(plain(t, made.Resources[id].Properties.at("PolicyDocument"))))
			if len(text) != size || size < 400 || size > 6144 {
				t.Errorf("in %s, %s has %d characters, and Check reckons with %d\n%s", partition, output, len(text), size, text)
			}
		}
		if policies := made.all("AWS::IAM::ManagedPolicy"); len(policies) != len(sizes) {
			t.Errorf("in %s, Check knows %d of %d policies", partition, len(sizes), len(policies))
		}
	}
}

// plain returns a value of a template as JSON, in which each function is a text.
func plain(t *testing.T, x any) []byte {
	t.Helper()
	var evaluated func(x any) any
	evaluated = func(x any) any {
		switch x := x.(type) {
		case []any:
			all := make([]any, len(x))
			for i, e := range x {
				all[i] = evaluated(e)
			}
			return all
		case map[string]any:
			if x["Fn::Join"] != nil || x["Ref"] != nil {
				return flat(x)
			}
			all := map[string]any{}
			for name, e := range x {
				all[name] = evaluated(e)
			}
			return all
		}
		return x
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(evaluated(x)); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(text.Bytes())
}

// CloudFormation would fail in the middle of a deployment.
func TestManagedPoliciesBeyondIAMLimitAreRefused(t *testing.T) {
	t.Parallel()
	images := func(of func(i int) string) func(*stack.Settings) {
		return func(s *stack.Settings) {
			longest(20)(s)
			for i := range s.Deployment.Pools {
				s.Deployment.Pools[i].AMI = of(i)
			}
		}
	}
	for name, c := range map[string]struct {
		change  func(*stack.Settings)
		refused bool
	}{
		"as usual":              {func(*stack.Settings) {}, false},
		"an organisation's":     {longest(10), false},
		"too many parameters":   {longest(20), true},
		"one parameter for all": {images(func(int) string { return "/acme/gpu/image" }), false},
		"images":                {images(func(i int) string { return fmt.Sprintf("ami-%017x", i) }), false},
		"the longest prefix": {func(s *stack.Settings) {
			longest(10)(s)
			s.Deployment.Cloud.S3.Prefix = strings.Repeat("p", 199) + "/"
		}, true},
		"without machines": {func(s *stack.Settings) {
			longest(20)(s)
			s.Machines = false
		}, false},
	} {
		err := settings(t, c.change).Check()
		if !c.refused && err != nil {
			t.Errorf("%s: refused with %v", name, err)
		}
		const want = " characters, and IAM accepts 6144 in a managed policy: use shorter names in [cloud.s3] "
		if c.refused && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "ReaderPolicy would have ") ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got error %v, want %q", name, err, want)
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
