package iam

import (
	"errors"
	"os"
	"testing"
)

func stack(t *testing.T) Roles {
	t.Helper()
	template, err := os.ReadFile("../../../infra/aws/stack/testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ReadTemplate(template)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The role limits what a compromised worker can do.
func TestMachineRoleAllowsOnlyTheWorkersActions(t *testing.T) {
	t.Parallel()
	p, ok := stack(t).Machine("acme-small")
	if !ok {
		t.Fatal("the template has no machine acme-small")
	}
	create, part := map[string][]string{"s3:if-none-match": {"*"}, "s3:ObjectCreationOperation": {"true"}},
		map[string][]string{"s3:ObjectCreationOperation": {"false"}}
	overwrite := map[string][]string{"s3:ObjectCreationOperation": {"true"}}
	keys := func(partitions ...string) map[string][]string {
		return map[string][]string{"dynamodb:LeadingKeys": partitions}
	}
	const bucket, table, queue = "arn:aws:s3:::acme-batches", "arn:aws:dynamodb:eu-central-1:000000000000:table/acme",
		"arn:aws:sqs:eu-central-1:000000000000:acme-"
	for _, c := range []struct {
		action, resource string
		context          map[string][]string
		allowed          bool
	}{
		{"s3:GetObject", bucket + "/team-a/prompts/a/b c.jsonl", nil, true},
		{"s3:GetObjectVersion", bucket + "/team-a/work/run/plan/0", nil, true},
		{"s3:GetObject", bucket + "/team-a/runs/parent/completions.jsonl", nil, true}, // a child keeps rows of it
		{"s3:GetObject", bucket + "/team-b/runs/parent/completions.jsonl", nil, false},
		{"s3:GetObject", bucket + "/team-b/prompts/x.jsonl", nil, false},
		{"s3:PutObject", bucket + "/team-a/work/r/shards/0/1", create, true},
		{"s3:PutObject", bucket + "/team-a/work/r/shards/0/1", part, true},
		{"s3:PutObject", bucket + "/team-a/work/r/shards/0/1", overwrite, false},
		{"s3:PutObject", bucket + "/team-a/prompts/x.jsonl", create, false},
		{"s3:PutObject", bucket + "/team-a/runs/r/completions.jsonl", create, false},
		{"s3:GetObject", bucket + "/team-a/models/content/ab/abcd", nil, true},
		{"s3:PutObject", bucket + "/team-a/models/content/ab/abcd", create, true},
		{"s3:PutObject", bucket + "/team-a/models/hub/org/model/0123.json", overwrite, false},
		{"s3:DeleteObject", bucket + "/team-a/models/content/ab/abcd", nil, false},
		{"s3:ListBucket", bucket, map[string][]string{"s3:prefix": {"team-a/models/"}}, true}, // tells absent from denied
		{"s3:DeleteObject", bucket + "/team-a/work/r/shards/0/1", nil, false},
		{"s3:DeleteObject", bucket + "/team-a/pending/clock-7", nil, true},
		{"s3:DeleteObject", bucket + "/team-a/cas/ab", nil, false},
		{"s3:ListBucket", bucket, nil, true},
		{"s3:ListBucket", bucket, map[string][]string{"s3:prefix": {"team-a/runs/"}}, true}, // tells gone from denied
		{"s3:ListBucket", bucket, map[string][]string{"s3:prefix": {"team-b/runs/"}}, false},
		{"s3:DeleteObject", bucket + "/team-a/runs/r/completions.jsonl", nil, false},
		{"dynamodb:PutItem", table, keys("shard-3f"), true},
		{"dynamodb:PutItem", table, keys("3f"), false},
		{"dynamodb:PutItem", table, keys("beat/"), true},
		{"dynamodb:PutItem", table, keys("beat/", "run/"), false},
		{"dynamodb:PutItem", table, keys("limit/"), true}, // its pool has a limit
		{"dynamodb:PutItem", table, keys("run/"), false},
		{"dynamodb:PutItem", table, keys("open/"), false},
		{"dynamodb:PutItem", table, keys("worker/"), false},
		{"dynamodb:PutItem", table, nil, false},
		{"dynamodb:GetItem", table, keys("run/"), true},
		{"dynamodb:Query", table, keys("beat/"), true},
		{"dynamodb:Query", table, keys("run/"), false},
		{"dynamodb:DeleteItem", table, keys("beat/"), false},
		{"sqs:ReceiveMessage", queue + "work-small", nil, true},
		{"sqs:ReceiveMessage", queue + "work-large", nil, false},
		{"sqs:SendMessage", queue + "coordinate", nil, true},
		{"sqs:SendMessage", queue + "work-small", nil, false},
		{"secretsmanager:GetSecretValue",
			"arn:aws:secretsmanager:eu-central-1:000000000000:secret:acme/hf-token-AbCdEf", nil, true},
		{"secretsmanager:GetSecretValue",
			"arn:aws:secretsmanager:eu-central-1:000000000000:secret:acme/api-token-AbCdEf", nil, false},
		{"secretsmanager:GetSecretValue",
			"arn:aws:secretsmanager:eu-central-1:000000000000:secret:acme/webhook-key-AbCdEf", nil, false},
		{"events:PutEvents", "arn:aws:events:eu-central-1:000000000000:event-bus/acme-events", nil, false},
		{"lambda:InvokeFunction", "arn:aws:lambda:eu-central-1:000000000000:function:acme-submit", nil, false},
		{"autoscaling:TerminateInstanceInAutoScalingGroup",
			"arn:aws:autoscaling:eu-central-1:000000000000:autoScalingGroup:7-8:autoScalingGroupName/acme-small", nil, true},
		{"autoscaling:TerminateInstanceInAutoScalingGroup",
			"arn:aws:autoscaling:eu-central-1:000000000000:autoScalingGroup:7-8:autoScalingGroupName/acme-large", nil, false},
		{"autoscaling:SetDesiredCapacity",
			"arn:aws:autoscaling:eu-central-1:000000000000:autoScalingGroup:7-8:autoScalingGroupName/acme-small", nil, false},
	} {
		if err := p.Check(Request{c.action, c.resource, c.context}); (err == nil) != c.allowed {
			t.Errorf("%s of %s with %v: %v", c.action, c.resource, c.context, err)
		}
	}
}

// Users upload prompts, read results and control runs. Readers only read. Users have the
// policy of readers as well.
func TestUserPoliciesAllowOnlyTheirActions(t *testing.T) {
	t.Parallel()
	roles := stack(t)
	const bucket, table, queue = "arn:aws:s3:::acme-batches", "arn:aws:dynamodb:eu-central-1:000000000000:table/acme",
		"arn:aws:sqs:eu-central-1:000000000000:acme-"
	keys := func(partition string) map[string][]string {
		return map[string][]string{"dynamodb:LeadingKeys": {partition}}
	}
	for _, c := range []struct {
		action, resource string
		context          map[string][]string
		reader, user     bool
	}{
		{"s3:GetObject", bucket + "/team-a/runs/r/completions.jsonl", nil, true, true},
		{"s3:GetObjectVersion", bucket + "/team-a/prompts/x.jsonl", nil, true, true},
		{"s3:GetObject", bucket + "/team-b/prompts/x.jsonl", nil, false, false},
		{"s3:GetObject", bucket + "/team-a/cas/ab", nil, true, true}, // snapshots of trainings
		{"s3:DeleteObject", bucket + "/team-a/cas/ab", nil, false, true},
		{"s3:PutObject", bucket + "/team-a/cas/ab", nil, false, false},
		{"s3:GetObject", bucket + "/team-a/pending/ab", nil, false, false},
		{"s3:ListBucketVersions", bucket, map[string][]string{"s3:prefix": {"team-a/prompts/"}}, true, true},
		{"s3:ListBucketVersions", bucket, map[string][]string{"s3:prefix": {""}}, false, false},
		{"s3:GetObject", bucket + "/team-a/rollout-installation.json", nil, true, true},
		{"s3:PutObject", bucket + "/team-a/rollout-installation.json", nil, false, false},
		{"s3:PutObject", bucket + "/team-a/prompts/x.jsonl", nil, false, true},
		{"s3:PutObject", bucket + "/team-a/runs/r/completions.jsonl", nil, false, false},
		{"s3:PutObject", bucket + "/team-a/work/r/plan/0", nil, false, false},
		{"s3:GetObject", bucket + "/team-a/models/own/x/ab.json", nil, true, true},
		{"s3:ListBucketVersions", bucket, map[string][]string{"s3:prefix": {"team-a/models/hub/"}}, true, true},
		{"s3:PutObject", bucket + "/team-a/models/content/ab/abcd", nil, false, true},
		{"s3:DeleteObject", bucket + "/team-a/models/content/ab/abcd", nil, false, false},
		{"s3:DeleteObject", bucket + "/team-a/prompts/x.jsonl", nil, false, false},
		{"dynamodb:GetItem", table, keys("3f"), true, true},
		{"dynamodb:Query", table, keys("run/"), true, true},
		{"dynamodb:PutItem", table, keys("3f"), false, true},
		{"dynamodb:PutItem", table, keys("run/"), false, false},
		{"dynamodb:PutItem", table, keys("shard-3f"), false, false},
		{"dynamodb:DeleteItem", table, keys("3f"), false, false},
		{"dynamodb:Query", table, keys("snapshot/"), true, true},
		{"dynamodb:DeleteItem", table, keys("snapshot/"), false, true},
		{"dynamodb:PutItem", table, keys("snapshot/"), false, false},
		{"sqs:GetQueueAttributes", queue + "work-small", nil, true, true},
		{"sqs:SendMessage", queue + "coordinate", nil, false, true},
		{"sqs:SendMessage", queue + "work-small", nil, false, false},
		{"sqs:ReceiveMessage", queue + "work-small", nil, false, false},
		{"lambda:InvokeFunction", "arn:aws:lambda:eu-central-1:000000000000:function:acme-submit", nil, false, true},
		{"lambda:InvokeFunction", "arn:aws:lambda:eu-central-1:000000000000:function:acme-finalize", nil, false, false},
		{"secretsmanager:GetSecretValue", "arn:aws:secretsmanager:eu-central-1:000000000000:secret:acme/hf-token-AbCdEf",
			nil, false, false},
		{"autoscaling:SetDesiredCapacity",
			"arn:aws:autoscaling:eu-central-1:000000000000:autoScalingGroup:7-8:autoScalingGroupName/acme-small", nil,
			false, false},
	} {
		for name, allowed := range map[string]bool{"reader": c.reader, "user": c.user} {
			err := errors.New("it has no policy")
			for _, policy := range []string{"reader", name} {
				if p, ok := roles.User("acme-" + policy + "-eu-central-1"); !ok {
					t.Fatalf("the template has no policy for a %s", policy)
				} else if err != nil {
					err = p.Check(Request{c.action, c.resource, c.context})
				}
			}
			if (err == nil) != allowed {
				t.Errorf("a %s: %s of %s with %v: %v", name, c.action, c.resource, c.context, err)
			}
		}
	}
}

func TestFunctionsCallOnlyTheirSuccessors(t *testing.T) {
	t.Parallel()
	roles := stack(t)
	const arn = "arn:aws:lambda:eu-central-1:000000000000:function:acme-"
	calls := map[string]string{"submit": "plan", "plan": "plan", "coordinate": "plan finalize", "finalize": "finalize",
		"reclaim": "submit plan", "interrupt": "", "api": "submit"}
	for name, want := range calls {
		p, ok := roles.Function("acme-" + name)
		if !ok {
			t.Fatalf("the template has no function %s", name)
		}
		got := ""
		for _, other := range []string{"submit", "plan", "coordinate", "finalize", "reclaim", "interrupt", "api"} {
			if p.Check(Request{Action: "lambda:InvokeFunction", Resource: arn + other}) == nil {
				if got != "" {
					got += " "
				}
				got += other
			}
		}
		if got != want {
			t.Errorf("%s may call %q, want %q", name, got, want)
		}
	}
}

// Submit claims the bucket. Reclaim looks for uploads without a run by their names alone.
func TestFunctionsThatKeepTheBucketAllowNoMore(t *testing.T) {
	t.Parallel()
	roles := stack(t)
	const bucket, table = "arn:aws:s3:::acme-batches", "arn:aws:dynamodb:eu-central-1:000000000000:table/acme"
	const owner = bucket + "/team-a/rollout-installation.json"
	list := func(prefix string) map[string][]string { return map[string][]string{"s3:prefix": {prefix}} }
	keys := func(partition string) map[string][]string {
		return map[string][]string{"dynamodb:LeadingKeys": {partition}}
	}
	for _, c := range []struct {
		action, resource string
		context          map[string][]string
		submit, reclaim  bool
	}{
		{"s3:GetObject", owner, nil, true, true},
		{"s3:PutObject", owner, nil, true, false},
		{"s3:PutObject", owner + "x", nil, false, false},
		{"s3:PutObject", bucket + "/rollout-installation.json", nil, false, false},
		{"s3:DeleteObject", owner, nil, false, false},
		{"s3:GetObject", bucket + "/team-a/prompts/x.jsonl", nil, true, false},
		{"s3:GetObject", bucket + "/team-a/runs/01JD2ZQ4T5W0M1X9YB7R3K8CVE/summary.json", nil, true, true},
		{"s3:GetObject", bucket + "/team-a/runs/01JD2ZQ4T5W0M1X9YB7R3K8CVE/completions.jsonl", nil, true, false},
		{"s3:ListBucketVersions", bucket, list("team-a/prompts/"), false, true},
		{"s3:ListBucketVersions", bucket, list("team-b/prompts/"), false, false},
		{"s3:ListBucketVersions", bucket, list("team-a/runs/"), false, false},
		{"s3:ListBucketVersions", bucket, list(""), false, false},
		{"dynamodb:PutItem", table, keys("installation/"), true, false},
		{"dynamodb:PutItem", table, keys("uploads/"), false, true},
		{"dynamodb:PutItem", table, keys("run/"), true, false},
		{"dynamodb:PutItem", table, keys("3f"), false, false},
		{"dynamodb:PutItem", table, keys("notify/"), false, true},
		{"dynamodb:PutItem", table, keys("outbox/"), false, true},
		{"events:PutEvents", "arn:aws:events:eu-central-1:000000000000:event-bus/acme-events", nil, false, true},
		{"events:PutEvents", "arn:aws:events:eu-central-1:000000000000:event-bus/default", nil, false, false},
		{"secretsmanager:GetSecretValue",
			"arn:aws:secretsmanager:eu-central-1:000000000000:secret:acme/webhook-key-AbCdEf", nil, false, true},
		{"secretsmanager:GetSecretValue",
			"arn:aws:secretsmanager:eu-central-1:000000000000:secret:acme/hf-token-AbCdEf", nil, false, false},
		{"dynamodb:DeleteItem", table, keys("installation/"), false, false},
		{"dynamodb:DeleteItem", table, keys("uploads/"), false, false},
		{"dynamodb:GetItem", table, keys("installation/"), true, true},
	} {
		for name, allowed := range map[string]bool{"submit": c.submit, "reclaim": c.reclaim} {
			p, ok := roles.Function("acme-" + name)
			if !ok {
				t.Fatalf("the template has no function %s", name)
			}
			if err := p.Check(Request{c.action, c.resource, c.context}); (err == nil) != allowed {
				t.Errorf("%s: %s of %s with %v: %v", name, c.action, c.resource, c.context, err)
			}
		}
	}
}

func TestUnsupportedOperatorIsAnError(t *testing.T) {
	t.Parallel()
	const template = `{"Resources":{"F":{"Type":"AWS::Lambda::Function","Properties":{"FunctionName":"f",` +
		`"Role":{"Fn::GetAtt":["R","Arn"]}}},
		"R":{"Type":"AWS::IAM::Role","Properties":{"Policies":[{"PolicyDocument":{"Statement":[{"Sid":"S",` +
		`"Effect":"Allow","Action":"a:B","Resource":"*","Condition":{"DateGreaterThan":{"k":"v"}}}]}}]}}}}`
	if _, err := ReadTemplate([]byte(template)); err == nil {
		t.Error("a template with an unsupported operator was read")
	}
}

func TestLikeMatchesPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, pattern string
		matches       bool
	}{
		{"", "", true}, {"", "*", true}, {"", "?", false}, {"a", "", false}, {"a/b.c", "a/*", true}, {"a/", "a/*", true},
		{"a", "a/*", false},
		{"3f", "??", true}, {"3f0", "??", false}, {"shard-3f", "shard-??", true}, {"abcabc", "*abc", true},
		{"abcabd", "*abc", false}, {"a.c", "a?c", true}, {"xay", "*a*", true},
	} {
		if got := like(c.text, c.pattern); got != c.matches {
			t.Errorf("%q matches %q: %t", c.text, c.pattern, got)
		}
	}
}
