package stack

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
)

// builder adds the resources of one stack to it.
type builder struct {
	Settings
	stack awscdk.Stack
	cloud config.Cloud
	disks awskms.IKey // see diskKey

	partition, account string // where the stack is deployed: the CDK's tokens, or text in policyProblems
}

// New adds the stack of an installation to the scope. The stack is in the
// config's region and in the account that deploys it. It returns Invalid if the
// settings are wrong, and NotFound if a function or the worker program has not
// been built.
func New(scope constructs.Construct, s Settings) (awscdk.Stack, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.Machines {
		if err := s.checkWorkerBinary(); err != nil {
			return nil, err
		}
		if err := s.checkUserData(); err != nil {
			return nil, err
		}
	}
	s = s.inRegion()
	cloud := s.Deployment.Cloud
	stack := awscdk.NewStack(scope, &cloud.Name, &awscdk.StackProps{
		Description: jsii.String("rollout: prompts in, completions out"),
		Env:         &awscdk.Environment{Region: &cloud.Region},
	})
	awscdk.Tags_Of(stack).Add(jsii.String("rollout"), &cloud.Name, nil)
	b := &builder{
		Settings: s, stack: stack, cloud: cloud,
		partition: *awscdk.Aws_PARTITION(), account: *awscdk.Aws_ACCOUNT_ID(),
	}

	if s.Table == Made {
		b.table()
	}
	queues := b.queues()
	functions, err := b.functions()
	if err != nil {
		return nil, err
	}
	if s.Bucket == Made {
		b.bucket(b.allowBucketNotifications(functions[submit]))
	} else {
		b.submitFromEventBridge(functions[submit])
	}
	b.pollCoordinateQueue(functions[coordinate], queues)
	b.keepFailedCalls(functions)
	b.reclaimEveryMinute(functions[reclaim])
	b.interruptionEvents(functions[interrupt])
	if b.Machines {
		b.machines()
	}
	b.monitoring(queues)
	b.eventBus()
	b.addUserPolicies()

	b.output("BucketName", "Put prompts into "+promptsOf(cloud)+" of it", &cloud.S3.Bucket)
	b.output("TableName", "The documents", &cloud.DynamoDB.Table)
	if b.API {
		b.output("ApiUrl", "The address of the API", b.url(functions[api]))
	}
	return stack, nil
}

// output adds an output to the stack. The cdk command prints it after a
// deployment.
func (b *builder) output(name, description string, value *string) {
	awscdk.NewCfnOutput(b.stack, &name, &awscdk.CfnOutputProps{Description: &description, Value: value})
}

// arn returns the ARN of a resource in this account and region.
func (b *builder) arn(service, resource string) string {
	parts := []string{"arn", b.partition, service, b.cloud.Region, b.account, resource}
	return strings.Join(parts, ":")
}

// child returns the CloudFormation resource that a construct stands for.
func child(c constructs.Construct) awscdk.CfnResource {
	return c.Node().DefaultChild().(awscdk.CfnResource)
}

// suppression states that a resource breaks a rule of the cdk-nag security
// checks, and why.
type suppression struct{ rule, why string }

// suppress writes the reasons into the template, where cdk-nag and readers of
// the template find them. Without suppressions it leaves the resource unchanged.
func suppress(r awscdk.CfnResource, suppressions ...suppression) {
	if len(suppressions) == 0 {
		return
	}
	rules := make([]any, len(suppressions))
	for i, s := range suppressions {
		rules[i] = map[string]any{"id": s.rule, "reason": s.why}
	}
	r.AddMetadata(jsii.String("cdk_nag"), map[string]any{"rules_to_suppress": rules})
}
