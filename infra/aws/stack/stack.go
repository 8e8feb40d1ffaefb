package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
)

// builder makes the parts of one stack.
type builder struct {
	Settings
	stack awscdk.Stack
	cloud config.Cloud
}

// New makes the stack of an installation. It is in the config's region, and in
// whichever account deploys it.
func New(scope constructs.Construct, s Settings) (awscdk.Stack, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.Machines {
		if err := s.find(); err != nil {
			return nil, err
		}
	}
	cloud := s.Deployment.Cloud
	stack := awscdk.NewStack(scope, &cloud.Name, &awscdk.StackProps{
		Description: jsii.String("rollout: prompts in, completions out"),
		Env:         &awscdk.Environment{Region: &cloud.Region},
	})
	awscdk.Tags_Of(stack).Add(jsii.String("rollout"), &cloud.Name, nil)
	b := &builder{Settings: s, stack: stack, cloud: cloud}

	if s.Table == Made {
		b.table()
	}
	queues := b.queues()
	functions, err := b.functions()
	if err != nil {
		return nil, err
	}
	if s.Bucket == Made {
		b.bucket(b.notify(functions[submit]))
	} else {
		b.bridge(functions[submit])
	}
	b.poll(functions[coordinate], queues)
	b.keepFailures(functions)
	b.schedule(functions[reclaim])
	b.notices(functions[interrupt])
	url := b.url(functions[api])
	if b.Machines {
		b.fleet()
	}
	b.monitoring(queues)
	b.users()

	b.output("BucketName", "Put prompts into "+promptsOf(cloud)+" of it", &cloud.S3.Bucket)
	b.output("TableName", "The documents", &cloud.DynamoDB.Table)
	b.output("ApiUrl", "The address of the API", url)
	return stack, nil
}

// output tells a value to whoever deploys.
func (b *builder) output(name, description string, value *string) {
	awscdk.NewCfnOutput(b.stack, &name, &awscdk.CfnOutputProps{Description: &description, Value: value})
}

// arn names a resource of this account and region.
func (b *builder) arn(service, resource string) string {
	return "arn:" + *awscdk.Aws_PARTITION() + ":" + service + ":" + b.cloud.Region + ":" + *awscdk.Aws_ACCOUNT_ID() + ":" + resource
}

// child is what CloudFormation makes of a construct.
func child(c constructs.Construct) awscdk.CfnResource {
	return c.Node().DefaultChild().(awscdk.CfnResource)
}

// suppression is why a resource keeps a rule of the security checks otherwise than
// they ask.
type suppression struct{ rule, why string }

// suppress writes the reasons into the template, where the checks look for them
// and whoever reads it sees them. Nothing to excuse leaves it as it is.
func suppress(r awscdk.CfnResource, excuses ...suppression) {
	if len(excuses) == 0 {
		return
	}
	rules := make([]any, len(excuses))
	for i, e := range excuses {
		rules[i] = map[string]any{"id": e.rule, "reason": e.why}
	}
	r.AddMetadata(jsii.String("cdk_nag"), map[string]any{"rules_to_suppress": rules})
}
