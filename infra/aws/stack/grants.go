package stack

import (
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// grant is a statement of a policy. Actions never contain wildcards. If a
// resource contains a wildcard, why says why it can't be named in full.
type grant struct {
	id         string
	deny       bool
	actions    []string
	resources  []string
	conditions map[string]any
	why        string
}

// role adds a role that the service assumes.
func (b *builder) role(id, service, description string, grants []grant) awsiam.Role {
	document, reasons := policyDocument(slices.Concat(grants, b.keyGrants(grants)))
	props := awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(&service, nil), Description: &description,
		InlinePolicies: &map[string]awsiam.PolicyDocument{"rollout": document},
	}
	b.identify(id, &props)
	role := awsiam.NewRole(b.stack, &id, &props)
	suppress(child(role), reasons...)
	return role
}

// policy adds a managed policy, to be attached to people. Managed policies exist
// in all regions, so the name ends with the stack's region.
func (b *builder) policy(id, name, description string, grants []grant) awsiam.ManagedPolicy {
	document, reasons := policyDocument(slices.Concat(grants, b.keyGrants(grants)))
	policy := awsiam.NewManagedPolicy(b.stack, &id, &awsiam.ManagedPolicyProps{
		ManagedPolicyName: jsii.String(b.Identity.Prefix + b.cloud.Name + "-" + name + "-" + b.cloud.Region),
		Path:              optional(b.Identity.Path),
		Description:       &description,
		Document:          document,
	})
	suppress(child(policy), reasons...)
	return policy
}

// policyDocument returns a policy document and the reasons for its wildcards.
func policyDocument(grants []grant) (awsiam.PolicyDocument, []suppression) {
	document := awsiam.NewPolicyDocument(nil)
	var whys []string
	for _, g := range grants {
		effect := awsiam.Effect_ALLOW
		if g.deny {
			effect = awsiam.Effect_DENY
		}
		var conditions *map[string]any
		if g.conditions != nil {
			conditions = &g.conditions
		}
		document.AddStatements(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
			Sid:        &g.id,
			Effect:     effect,
			Actions:    jsii.Strings(g.actions...),
			Resources:  jsii.Strings(g.resources...),
			Conditions: conditions,
		}))
		if g.why != "" {
			whys = append(whys, g.id+": "+g.why)
		}
	}
	if len(whys) == 0 {
		return document, nil
	}
	return document, []suppression{{"AwsSolutions-IAM5", strings.Join(whys, " ")}}
}

// readObjects allows reading objects below the prefixes. It also allows listing
// them, because S3 distinguishes an absent object from a forbidden one only for
// callers that may list.
func (b *builder) readObjects(prefixes ...string) []grant {
	return []grant{
		{
			id:        "ReadObjects",
			actions:   []string{"s3:GetObject", "s3:GetObjectVersion"},
			resources: b.objectArns(prefixes...),
			why:       "Users name the objects, and runs the folders; the prefix is all that is known of them.",
		},
		// A request for a single object has no prefix; IfExists lets it pass.
		{
			id:         "TellAbsentFromForbidden",
			actions:    []string{"s3:ListBucket"},
			resources:  []string{b.bucketArn()},
			conditions: map[string]any{"StringLikeIfExists": map[string]any{"s3:prefix": b.keyPatterns(prefixes)}},
		},
	}
}

// readOwner allows reading which installation owns the bucket. With readObjects it also
// allows to learn that there is no owner yet.
func (b *builder) readOwner() []grant {
	return []grant{{id: "ReadOwner", actions: []string{"s3:GetObject"}, resources: b.ownerArn()}}
}

// claimBucket allows noting that this installation owns the bucket.
func (b *builder) claimBucket() []grant {
	return []grant{{id: "ClaimBucket", actions: []string{"s3:PutObject"}, resources: b.ownerArn()}}
}

func (b *builder) ownerArn() []string {
	return []string{b.bucketArn() + "/" + b.cloud.S3.Prefix + record.OwnerKey}
}

// keyPatterns returns patterns for all keys that begin with one of the prefixes.
func (b *builder) keyPatterns(prefixes []string) (patterns []string) {
	for _, p := range prefixes {
		patterns = append(patterns, b.cloud.S3.Prefix+p+"*")
	}
	return patterns
}

// listObjects allows listing the objects and versions below the prefixes.
func (b *builder) listObjects(prefixes ...string) []grant {
	return []grant{{
		id:         "ListObjects",
		actions:    []string{"s3:ListBucketVersions"},
		resources:  []string{b.bucketArn()},
		conditions: map[string]any{"StringLike": map[string]any{"s3:prefix": b.keyPatterns(prefixes)}},
	}}
}

// createObjects allows creating objects below the prefixes and checking that the
// bucket keeps versions. It does not prevent overwriting; the programs do that
// with conditional writes. For machines, neverOverwrite enforces it.
func (b *builder) createObjects(prefixes ...string) []grant {
	return append(b.putObjects(prefixes...), b.readVersioning()...)
}

// putObjects is createObjects without readVersioning, for callers that have that
// already.
func (b *builder) putObjects(prefixes ...string) []grant {
	return []grant{{
		id:        "CreateObjects",
		actions:   []string{"s3:PutObject", "s3:AbortMultipartUpload"},
		resources: b.objectArns(prefixes...),
		why:       "Objects are named when they are made; the prefix is all that is known of them.",
	}}
}

// readVersioning allows asking whether the bucket keeps versions.
func (b *builder) readVersioning() []grant {
	return []grant{{
		id:        "SeeThatVersionsAreKept",
		actions:   []string{"s3:GetBucketVersioning"},
		resources: []string{b.bucketArn()},
	}}
}

// neverOverwrite denies each write that lacks the condition If-None-Match, which
// fails if the object exists. The parts of a multipart upload can't carry the
// condition; its completion must.
func (b *builder) neverOverwrite() []grant {
	return []grant{{
		id:        "NeverOverwrite",
		deny:      true,
		actions:   []string{"s3:PutObject"},
		resources: b.objectArns(""),
		conditions: map[string]any{
			"Null": map[string]any{"s3:if-none-match": "true"},
			"Bool": map[string]any{"s3:ObjectCreationOperation": "true"},
		},
		why: "It forbids, and does so everywhere.",
	}}
}

// deleteObjects allows adding delete markers below the prefixes. The object
// versions remain until the bucket's lifecycle removes them.
func (b *builder) deleteObjects(prefixes ...string) []grant {
	return []grant{{id: "RemoveObjects", actions: []string{"s3:DeleteObject"}, resources: b.objectArns(prefixes...),
		why: "Objects are named when they are made; the prefix is all that is known of them."}}
}

// readDocuments allows reading documents by their keys.
func (b *builder) readDocuments() []grant {
	return []grant{{
		id:        "ReadDocuments",
		actions:   []string{"dynamodb:GetItem", "dynamodb:BatchGetItem"},
		resources: []string{b.tableArn()},
	}}
}

// queryDocuments allows listing the documents of the partitions.
func (b *builder) queryDocuments(partitions ...string) []grant {
	return []grant{{
		id:         "ListDocuments",
		actions:    []string{"dynamodb:Query"},
		resources:  []string{b.tableArn()},
		conditions: keysWithin(partitions),
	}}
}

// writeDocuments allows writing documents of the partitions.
func (b *builder) writeDocuments(partitions ...string) []grant {
	return []grant{{
		id:         "WriteDocuments",
		actions:    []string{"dynamodb:PutItem"},
		resources:  []string{b.tableArn()},
		conditions: keysWithin(partitions),
	}}
}

// deleteDocuments allows deleting documents of the partitions.
func (b *builder) deleteDocuments(partitions ...string) []grant {
	return []grant{{
		id:         "RemoveDocuments",
		actions:    []string{"dynamodb:DeleteItem"},
		resources:  []string{b.tableArn()},
		conditions: keysWithin(partitions),
	}}
}

// keysWithin returns a condition that holds if a request names only items of the
// partitions.
func keysWithin(partitions []string) map[string]any {
	return map[string]any{
		"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": partitions},
		"Null":                    map[string]any{"dynamodb:LeadingKeys": "false"},
	}
}

// sendMessages allows sending messages to the queues.
func (b *builder) sendMessages(names ...string) []grant {
	return []grant{{
		id:        "SendMessages",
		actions:   []string{"sqs:SendMessage", "sqs:GetQueueUrl"},
		resources: b.queueArns(names...),
	}}
}

// receiveMessages allows receiving messages from the queues, and moving messages
// that can't be read to their dead-letter queues.
func (b *builder) receiveMessages(names ...string) []grant {
	dead := make([]string, len(names))
	for i, name := range names {
		dead[i] = queue.DeadLetterQueue(name)
	}
	return []grant{
		{
			id: "ReceiveMessages",
			actions: []string{
				"sqs:ReceiveMessage",
				"sqs:DeleteMessage",
				"sqs:ChangeMessageVisibility",
				"sqs:GetQueueUrl",
				"sqs:GetQueueAttributes",
			},
			resources: b.queueArns(names...),
		},
		{
			id:        "BuryMessages",
			actions:   []string{"sqs:SendMessage", "sqs:GetQueueUrl"},
			resources: b.queueArns(dead...),
		},
	}
}

// measureQueues allows reading the lengths of the queues.
func (b *builder) measureQueues(names ...string) []grant {
	return []grant{{
		id:        "MeasureQueues",
		actions:   []string{"sqs:GetQueueAttributes", "sqs:GetQueueUrl"},
		resources: b.queueArns(names...),
	}}
}

// measureAllQueues allows reading the length of every queue of the installation.
func (b *builder) measureAllQueues() []grant {
	all := b.measureQueues("*")
	all[0].why = "A policy has room for some thousand characters, and each pool has four queues; " +
		"all that begin so are the installation's."
	return all
}

// invokeFunctions allows invoking the functions.
func (b *builder) invokeFunctions(names ...string) []grant {
	var arns []string
	for _, name := range names {
		arns = append(arns, b.arn("lambda", "function:"+b.cloud.FunctionName(name)))
	}
	return []grant{{id: "InvokeFunctions", actions: []string{"lambda:InvokeFunction"}, resources: arns}}
}

// readSecrets allows reading the secrets of the allowlist that wanted accepts.
// If wanted accepts no secret, it returns nil.
func (b *builder) readSecrets(wanted func(name string) bool) []grant {
	var arns []string
	for _, name := range b.Deployment.Secrets {
		if wanted(name) {
			arns = append(arns, b.arn("secretsmanager", "secret:"+b.cloud.Secrets.Prefix+name+"-??????"))
		}
	}
	if len(arns) == 0 {
		return nil
	}
	return []grant{{id: "ReadSecrets", actions: []string{"secretsmanager:GetSecretValue"}, resources: arns,
		why: "Secrets Manager ends the name of a secret with six characters of its own."}}
}

// scaleFleets allows setting the desired capacity of the pools' groups, resuming what Auto
// Scaling has suspended of them, and noting what is seen of them. It returns nil if the stack
// has no machines.
func (b *builder) scaleFleets() []grant {
	if !b.Machines {
		return nil
	}
	return []grant{
		{
			id:        "SeeFleets",
			actions:   []string{"autoscaling:DescribeAutoScalingGroups"},
			resources: []string{"*"},
			why:       "The action knows no resources.",
		},
		{
			id:        "ScaleFleets",
			actions:   []string{"autoscaling:SetDesiredCapacity", "autoscaling:ResumeProcesses"},
			resources: b.groupArns(b.Deployment.Pools...),
			why:       "A group's name is preceded by an id that it gets when it is made.",
		},
	}
}

// readMembership allows asking which group a machine belongs to. It returns nil
// if the stack has no machines.
func (b *builder) readMembership() []grant {
	if !b.Machines {
		return nil
	}
	return []grant{{
		id:        "SeeMachines",
		actions:   []string{"autoscaling:DescribeAutoScalingInstances"},
		resources: []string{"*"},
		why:       "The action knows no resources.",
	}}
}

func (b *builder) groupArns(pools ...config.Pool) (arns []string) {
	for _, p := range pools {
		name := b.cloud.FleetName(p.Name)
		arns = append(arns, b.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/"+name))
	}
	return arns
}

// join concatenates lists of statements and leaves out statements without
// resources, which IAM refuses.
func join(lists ...[]grant) (all []grant) {
	for _, g := range slices.Concat(lists...) {
		if len(g.resources) > 0 {
			all = append(all, g)
		}
	}
	return all
}
