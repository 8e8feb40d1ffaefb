package stack

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/jsii-runtime-go"
)

// Keys are the ARNs of KMS keys of one's own. "" leaves the encryption of a part to a key
// of AWS.
type Keys struct {
	Bucket, Queues, Table string
	Disks                 string // of the machines; Auto Scaling's own role must be allowed to use it
	Secrets               string // of those that the config names, which the stack does not make
	// Read are those of other buckets that machines read: buckets with models, and the
	// CDK's own bucket if it has a key.
	Read []string
}

// Rights that the services need of a caller's role when they use a key for it, as their
// documentation says. A multipart upload reads its parts, and SQS checks what it encrypts.
var (
	readBucketKey  = []string{"kms:Decrypt"}
	writeBucketKey = []string{"kms:Decrypt", "kms:GenerateDataKey"}
	receiveKey     = []string{"kms:Decrypt"}
	sendKey        = []string{"kms:Decrypt", "kms:GenerateDataKey"}
	readSecretKey  = []string{"kms:Decrypt"}
	readTableKey   = []string{"kms:Decrypt", "kms:DescribeKey"}
	writeTableKey  = []string{
		"kms:Decrypt",
		"kms:DescribeKey",
		"kms:Encrypt",
		"kms:GenerateDataKey",
		"kms:GenerateDataKeyWithoutPlaintext",
		"kms:ReEncryptFrom",
		"kms:ReEncryptTo",
	}
)

// keyGrants returns the rights to use the keys that the statements need: those of the
// bucket, the table, the queues and the secrets that they allow to read, and more where they allow to
// write. A key can be used through its service alone.
func (b *builder) keyGrants(grants []grant) []grant {
	allowed := func(actions []string, resource func(string) bool) bool {
		return slices.ContainsFunc(grants, func(g grant) bool {
			return !g.deny && slices.ContainsFunc(g.resources, resource) &&
				slices.ContainsFunc(g.actions, func(a string) bool { return slices.Contains(actions, a) })
		})
	}
	all := func(string) bool { return true }
	ours := func(arn string) bool { return strings.HasPrefix(arn, b.bucketArn()+"/") }
	var out []grant
	for _, u := range []struct {
		id, key, service       string
		reads, writes          []string // actions that the statements allow
		resource               func(string) bool
		whenReading, whenWrite []string
	}{
		{"UseTheBucketsKey", b.Keys.Bucket, "s3", []string{"s3:GetObject", "s3:GetObjectVersion"},
			[]string{"s3:PutObject"}, ours, readBucketKey, writeBucketKey},
		{"UseTheQueuesKey", b.Keys.Queues, "sqs", []string{"sqs:ReceiveMessage"}, []string{"sqs:SendMessage"},
			all, receiveKey, sendKey},
		{"UseTheTablesKey", b.Keys.Table, "dynamodb", []string{"dynamodb:GetItem", "dynamodb:Query"},
			[]string{"dynamodb:PutItem", "dynamodb:DeleteItem"}, all, readTableKey, writeTableKey},
		{"UseTheSecretsKey", b.Keys.Secrets, "secretsmanager", []string{"secretsmanager:GetSecretValue"}, nil,
			all, readSecretKey, nil},
	} {
		switch {
		case u.key == "":
		case allowed(u.writes, u.resource):
			out = append(out, b.useKeys(u.id, u.service, u.whenWrite, u.key))
		case allowed(u.reads, u.resource):
			out = append(out, b.useKeys(u.id, u.service, u.whenReading, u.key))
		}
	}
	return out
}

// readKeys returns the right to read other buckets' objects, for machines.
func (b *builder) readKeys() []grant {
	return []grant{b.useKeys("UseOtherBucketsKeys", "s3", readBucketKey, b.Keys.Read...)}
}

// useKeys allows the actions on keys through a service. Names of services end in
// amazonaws.com, and in China in amazonaws.com.cn.
func (b *builder) useKeys(id, service string, actions []string, keys ...string) grant {
	via := fmt.Sprintf("%s.%s.amazonaws.com*", service, b.cloud.Region)
	return grant{
		id: id, actions: actions, resources: keys,
		conditions: map[string]any{"StringLike": map[string]any{"kms:ViaService": via}},
	}
}

// key returns the construct of a key that exists.
func (b *builder) key(id, arn string) awskms.IKey {
	return awskms.Key_FromKeyArn(b.stack, jsii.String("Key-"+id), &arn)
}

// diskKey returns the key of the machines' disks, which all pools share.
func (b *builder) diskKey() awskms.IKey {
	if b.disks == nil {
		b.disks = b.key("Disks", b.Keys.Disks)
	}
	return b.disks
}

// keyARN matches the ARN of a key. A policy can't name an alias.
var keyARN = regexp.MustCompile(`^arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/[a-zA-Z0-9-]+$`)

// problems returns what is wrong with the keys for a deployment in the region.
func (k Keys) problems(region string) (problems []string) {
	named := []struct{ name, arn string }{
		{"kms_bucket", k.Bucket}, {"kms_queues", k.Queues}, {"kms_table", k.Table}, {"kms_disks", k.Disks},
		{"kms_secrets", k.Secrets},
	}
	for _, arn := range k.Read {
		named = append(named, struct{ name, arn string }{"kms_read", arn})
	}
	for _, n := range named {
		if n.arn == "" {
			continue
		}
		parts := keyARN.FindStringSubmatch(n.arn)
		switch {
		case parts == nil:
			problems = append(problems, fmt.Sprintf("%s is %q: use the ARN of a key, such as "+
				"arn:aws:kms:%s:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab; an alias can't be allowed by a policy",
				n.name, n.arn, region))
		case parts[1] != region:
			problems = append(problems, fmt.Sprintf("%s is a key of %s: use one of %s", n.name, parts[1], region))
		}
	}
	return problems
}
