package stack

import (
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
	"rollout/shared/queue"
)

// grant is a statement of a role's policy. All actions are named; why says for
// which reason a resource can't be, where one has a wildcard.
type grant struct {
	id         string
	deny       bool
	actions    []string
	resources  []string
	conditions map[string]any
	why        string
}

// role makes the role that a service takes on.
func (b *builder) role(id, service, description string, grants []grant) awsiam.Role {
	document, reasons := permit(grants)
	role := awsiam.NewRole(b.stack, &id, &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(&service, nil), Description: &description,
		InlinePolicies: &map[string]awsiam.PolicyDocument{"rollout": document},
	})
	suppress(child(role), reasons...)
	return role
}

// policy makes a policy of that name, to be attached to people. Policies belong
// to no region: that of the stack is in the name.
func (b *builder) policy(id, name, description string, grants []grant) awsiam.ManagedPolicy {
	document, reasons := permit(grants)
	policy := awsiam.NewManagedPolicy(b.stack, &id, &awsiam.ManagedPolicyProps{
		ManagedPolicyName: jsii.String(b.cloud.Name + "-" + name + "-" + b.cloud.Region), Description: &description, Document: document,
	})
	suppress(child(policy), reasons...)
	return policy
}

// permit makes the document of a policy, and the reasons for its wildcards.
func permit(grants []grant) (awsiam.PolicyDocument, []suppression) {
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
			Sid: &g.id, Effect: effect, Actions: jsii.Strings(g.actions...), Resources: jsii.Strings(g.resources...), Conditions: conditions,
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

// read allows to read objects below the prefixes. What is not there is told
// from what is forbidden only to those who may list.
func (b *builder) read(prefixes ...string) []grant {
	return []grant{
		{id: "ReadObjects", actions: []string{"s3:GetObject", "s3:GetObjectVersion"}, resources: b.objects(prefixes...),
			why: "Users name the objects, and runs the folders; the prefix is all that is known of them."},
		// A request for one object has no prefix, and passes.
		{id: "TellAbsentFromForbidden", actions: []string{"s3:ListBucket"}, resources: []string{b.bucketArn()},
			conditions: map[string]any{"StringLikeIfExists": map[string]any{"s3:prefix": b.below(prefixes)}}},
	}
}

// below stands for all keys that begin with one of the prefixes.
func (b *builder) below(prefixes []string) (patterns []string) {
	for _, p := range prefixes {
		patterns = append(patterns, b.cloud.S3.Prefix+p+"*")
	}
	return patterns
}

// enumerate allows to list the objects below the prefixes.
func (b *builder) enumerate(prefixes ...string) []grant {
	return []grant{{id: "ListObjects", actions: []string{"s3:ListBucketVersions"}, resources: []string{b.bucketArn()},
		conditions: map[string]any{"StringLike": map[string]any{"s3:prefix": b.below(prefixes)}}}}
}

// create allows to make objects below the prefixes. Whether they are made with
// the condition that none is there is the program's affair, but for machines:
// see neverOverwrite.
func (b *builder) create(prefixes ...string) []grant {
	return append(b.put(prefixes...), b.versioning()...)
}

// put is create for who may see that versions are kept.
func (b *builder) put(prefixes ...string) []grant {
	return []grant{{id: "CreateObjects", actions: []string{"s3:PutObject", "s3:AbortMultipartUpload"}, resources: b.objects(prefixes...),
		why: "Objects are named when they are made; the prefix is all that is known of them."}}
}

// versioning allows to ask whether the bucket keeps versions.
func (b *builder) versioning() []grant {
	return []grant{{id: "SeeThatVersionsAreKept", actions: []string{"s3:GetBucketVersioning"}, resources: []string{b.bucketArn()}}}
}

// neverOverwrite refuses each object that is not made under the condition that
// none of its name is there. The parts of an upload can't have the condition;
// its completion must.
func (b *builder) neverOverwrite() []grant {
	return []grant{{id: "NeverOverwrite", deny: true, actions: []string{"s3:PutObject"}, resources: b.objects(""),
		conditions: map[string]any{"Null": map[string]any{"s3:if-none-match": "true"}, "Bool": map[string]any{"s3:ObjectCreationOperation": "true"}},
		why:        "It forbids, and does so everywhere."}}
}

// unlink allows to mark objects below the prefix as deleted. Their bytes stay
// until the bucket's lifecycle removes them.
func (b *builder) unlink(prefix string) []grant {
	return []grant{{id: "RemoveObjects", actions: []string{"s3:DeleteObject"}, resources: b.objects(prefix),
		why: "Objects are named when they are made; the prefix is all that is known of them."}}
}

// load allows to read documents.
func (b *builder) load() []grant {
	return []grant{{id: "ReadDocuments", actions: []string{"dynamodb:GetItem", "dynamodb:BatchGetItem"}, resources: []string{b.tableArn()}}}
}

// list allows to list the documents of the partitions.
func (b *builder) list(partitions ...string) []grant {
	return []grant{{id: "ListDocuments", actions: []string{"dynamodb:Query"}, resources: []string{b.tableArn()}, conditions: within(partitions)}}
}

// save allows to write documents of the partitions.
func (b *builder) save(partitions ...string) []grant {
	return []grant{{id: "WriteDocuments", actions: []string{"dynamodb:PutItem"}, resources: []string{b.tableArn()}, conditions: within(partitions)}}
}

// remove allows to delete documents of the partitions.
func (b *builder) remove(partitions ...string) []grant {
	return []grant{{id: "RemoveDocuments", actions: []string{"dynamodb:DeleteItem"}, resources: []string{b.tableArn()}, conditions: within(partitions)}}
}

// within holds for requests about items of the partitions alone.
func within(partitions []string) map[string]any {
	return map[string]any{"ForAllValues:StringLike": map[string]any{"dynamodb:LeadingKeys": partitions}, "Null": map[string]any{"dynamodb:LeadingKeys": "false"}}
}

// send allows to put messages into the queues.
func (b *builder) send(names ...string) []grant {
	return []grant{{id: "SendMessages", actions: []string{"sqs:SendMessage", "sqs:GetQueueUrl"}, resources: b.queueArns(names...)}}
}

// receive allows to take messages out of the queues, and to bury those that
// can't be read.
func (b *builder) receive(names ...string) []grant {
	dead := make([]string, len(names))
	for i, name := range names {
		dead[i] = queue.DeadLetterQueue(name)
	}
	return []grant{
		{id: "ReceiveMessages", actions: []string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"},
			resources: b.queueArns(names...)},
		{id: "BuryMessages", actions: []string{"sqs:SendMessage", "sqs:GetQueueUrl"}, resources: b.queueArns(dead...)},
	}
}

// measure allows to ask how long queues are.
func (b *builder) measure(names ...string) []grant {
	return []grant{{id: "MeasureQueues", actions: []string{"sqs:GetQueueAttributes", "sqs:GetQueueUrl"}, resources: b.queueArns(names...)}}
}

// measureAll allows to ask how long any queue of the installation is.
func (b *builder) measureAll() []grant {
	all := b.measure("*")
	all[0].why = "A policy has room for some thousand characters, and each pool has four queues; all that begin so are the installation's."
	return all
}

// invoke allows to call functions.
func (b *builder) invoke(names ...string) []grant {
	var arns []string
	for _, name := range names {
		arns = append(arns, b.arn("lambda", "function:"+b.cloud.FunctionName(name)))
	}
	return []grant{{id: "InvokeFunctions", actions: []string{"lambda:InvokeFunction"}, resources: arns}}
}

// secrets allows to read secrets of the allowlist. Nothing to read is no grant.
func (b *builder) secrets(wanted func(name string) bool) []grant {
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

// fleets allows to raise the number of machines of the pools' groups.
func (b *builder) fleets() []grant {
	if !b.Machines {
		return nil
	}
	return []grant{
		{id: "SeeFleets", actions: []string{"autoscaling:DescribeAutoScalingGroups"}, resources: []string{"*"}, why: "The action knows no resources."},
		{id: "RaiseFleets", actions: []string{"autoscaling:SetDesiredCapacity"}, resources: b.groupArns(b.Deployment.InferPools()...),
			why: "A group's name is preceded by an id that it gets when it is made."},
	}
}

// membership allows to ask which group a machine is one of.
func (b *builder) membership() []grant {
	if !b.Machines {
		return nil
	}
	return []grant{{id: "SeeMachines", actions: []string{"autoscaling:DescribeAutoScalingInstances"}, resources: []string{"*"}, why: "The action knows no resources."}}
}

func (b *builder) groupArns(pools ...config.Pool) (arns []string) {
	for _, p := range pools {
		arns = append(arns, b.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/"+b.cloud.FleetName(p.Name)))
	}
	return arns
}

// join puts statements that do the same together, and keeps the others in
// their order.
func join(lists ...[]grant) (all []grant) {
	for _, g := range slices.Concat(lists...) {
		if len(g.resources) > 0 {
			all = append(all, g)
		}
	}
	return all
}
