package iam

import (
	"os"
	"slices"
	"testing"
)

// withKeys reads the roles of the stack whose parts have keys of their own.
func withKeys(t *testing.T) Roles {
	t.Helper()
	template, err := os.ReadFile("../../../infra/aws/stack/testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile("../../../infra/aws/stack/testdata/keys.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ReadTemplate(template, keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Who may read or write something may use its key for that, through its service, and no
// other key.
func TestRolesMayUseTheKeysOfWhatTheyMayUse(t *testing.T) {
	t.Parallel()
	const key = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-00000000000"
	const bucket, queues, table, disks, models, secrets = key + "a", key + "b", key + "c", key + "d", key + "e", key + "f"
	roles := withKeys(t)
	policies := map[string]Policy{}
	for _, name := range []string{"submit", "plan", "coordinate", "finalize", "reclaim", "interrupt", "api"} {
		policies[name], _ = roles.Function("acme-" + name)
	}
	policies["worker"], _ = roles.Machine("acme-small")
	policies["reader"], _ = roles.User("acme-reader-eu-central-1")
	user, _ := roles.User("acme-user-eu-central-1")
	policies["user"] = slices.Concat(policies["reader"], user)
	for _, c := range []struct {
		who, action, key, service string
		allowed                   bool
	}{
		{"worker", "kms:Decrypt", bucket, "s3", true},
		{"worker", "kms:GenerateDataKey", bucket, "s3", true},
		{"worker", "kms:Decrypt", bucket, "sqs", false}, // the key of the bucket, through another service
		{"worker", "kms:Encrypt", bucket, "s3", false},
		{"worker", "kms:Decrypt", queues, "sqs", true},
		{"worker", "kms:GenerateDataKey", table, "dynamodb", true},
		{"worker", "kms:CreateGrant", table, "dynamodb", false},
		{"worker", "kms:Decrypt", models, "s3", true},
		{"worker", "kms:GenerateDataKey", models, "s3", false},
		{"worker", "kms:Decrypt", disks, "ec2", false},             // Auto Scaling's own role uses it
		{"worker", "kms:Decrypt", secrets, "secretsmanager", true}, // the pool's hf-token
		{"submit", "kms:Decrypt", models, "s3", false},
		{"submit", "kms:Decrypt", secrets, "secretsmanager", false},
		{"api", "kms:Decrypt", bucket, "s3", true},
		{"api", "kms:GenerateDataKey", bucket, "s3", true},
		{"interrupt", "kms:Decrypt", bucket, "s3", false},
		{"finalize", "kms:GenerateDataKey", table, "dynamodb", false},
		{"reader", "kms:Decrypt", bucket, "s3", true},
		{"reader", "kms:GenerateDataKey", bucket, "s3", false},
		{"reader", "kms:Decrypt", queues, "sqs", true}, // dead letters
		{"reader", "kms:GenerateDataKey", queues, "sqs", false},
		{"user", "kms:GenerateDataKey", bucket, "s3", true},
		{"user", "kms:GenerateDataKey", queues, "sqs", true},
		{"user", "kms:GenerateDataKey", table, "dynamodb", true},
		{"user", "kms:Decrypt", models, "s3", false},
	} {
		via := map[string][]string{"kms:ViaService": {c.service + ".eu-central-1.amazonaws.com"}}
		if err := policies[c.who].Check(Request{c.action, c.key, via}); (err == nil) != c.allowed {
			t.Errorf("%s: %s of %s through %s: %v", c.who, c.action, c.key, c.service, err)
		}
		if err := policies[c.who].Check(Request{Action: c.action, Resource: c.key}); err == nil {
			t.Errorf("%s may itself %s with %s", c.who, c.action, c.key)
		}
	}
}

// Whatever a role may do to the bucket, the queues and the table, its keys let it.
func TestAllowedRequestsHaveTheRightsToTheirKeys(t *testing.T) {
	t.Parallel()
	roles := withKeys(t)
	checked := 0
	check := func(who string, p Policy) {
		for _, s := range p {
			if s.deny {
				continue
			}
			for _, action := range s.actions {
				for _, at := range s.resources {
					for _, k := range roles.KeyRequests(Request{Action: action, Resource: at}) {
						checked++
						if err := p.Check(k); err != nil {
							t.Errorf("%s may %s of %s, but not with its key: %v", who, action, at, err)
						}
					}
				}
			}
		}
	}
	for name, p := range roles.functions {
		check(name, p)
	}
	for name, p := range roles.machines {
		check(name, p)
	}
	for name, p := range roles.users {
		check(name, p)
	}
	if checked < 100 {
		t.Errorf("%d rights to keys were checked", checked)
	}
	read := Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::acme-batches/x"}
	if got := stack(t).KeyRequests(read); len(got) > 0 {
		t.Errorf("without keys, KMS is asked for %v", got)
	}
}
