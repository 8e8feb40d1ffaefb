package stack

import (
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/config"
	"rollout/shared/host"
)

// Settings of the event source mapping of coordinate's queue. A batch is one
// step of each of its runs. Two concurrent batches keep runs from waiting for
// each other; more would conflict on the same documents.
const (
	batchSize      = 1000
	batchSeconds   = 1
	maxConcurrency = 2
)

// allowBucketNotifications allows S3 to invoke the function for the bucket's
// objects. It returns the permission and the function's ARN.
func (b *builder) allowBucketNotifications(f awslambda.Function) (awslambda.CfnPermission, *string) {
	return awslambda.NewCfnPermission(b.stack, jsii.String("BucketCallsSubmit"), &awslambda.CfnPermissionProps{
		Action:        jsii.String("lambda:InvokeFunction"),
		FunctionName:  f.FunctionName(),
		Principal:     jsii.String("s3.amazonaws.com"),
		SourceAccount: awscdk.Aws_ACCOUNT_ID(),
		SourceArn:     jsii.String(b.bucketArn()), // not the bucket's attribute: that would be a cycle
	}), f.FunctionArn()
}

// submitFromEventBridge invokes the function for new prompts in an existing
// bucket. The stack can't change that bucket's notifications: its owner must
// turn on notifications to EventBridge.
func (b *builder) submitFromEventBridge(f awslambda.Function) {
	b.rule("Prompts", "rollout: there are new prompts", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.s3"},
		"detail-type": []string{"Object Created"},
		"detail": map[string]any{
			"bucket": map[string]any{"name": []string{b.cloud.S3.Bucket}},
			"object": map[string]any{"key": []any{map[string]any{"prefix": promptsOf(b.cloud)}}},
		},
	}})
}

// pollCoordinateQueue lets Lambda invoke coordinate with batches of messages
// from its queue.
func (b *builder) pollCoordinateQueue(f awslambda.Function, queues map[string]awssqs.Queue) {
	awslambda.NewCfnEventSourceMapping(
		b.stack,
		jsii.String("QueueCallsCoordinate"),
		&awslambda.CfnEventSourceMappingProps{
			FunctionName:                   f.FunctionName(),
			EventSourceArn:                 queues[host.CoordinateQueue].QueueArn(),
			BatchSize:                      jsii.Number(batchSize),
			MaximumBatchingWindowInSeconds: jsii.Number(batchSeconds),
			FunctionResponseTypes:          jsii.Strings("ReportBatchItemFailures"),
			ScalingConfig: &awslambda.CfnEventSourceMapping_ScalingConfigProperty{
				MaximumConcurrency: jsii.Number(maxConcurrency),
			},
		},
	)
}

// keepFailedCalls sends the events of asynchronous invocations that still fail
// after their retries to the dead-letter queue of tasks.
//
// The function reclaim has none: it is invoked again within a minute with the
// same event, and an alarm reports its failures.
func (b *builder) keepFailedCalls(functions map[string]awslambda.Function) {
	for _, name := range []string{submit, plan, finalize, interrupt} {
		awslambda.NewCfnEventInvokeConfig(
			b.stack,
			jsii.String("Failures-"+name),
			&awslambda.CfnEventInvokeConfigProps{
				FunctionName:             functions[name].FunctionName(),
				Qualifier:                jsii.String("$LATEST"),
				MaximumRetryAttempts:     jsii.Number(2),
				MaximumEventAgeInSeconds: jsii.Number(6 * 3600),
				DestinationConfig: &awslambda.CfnEventInvokeConfig_DestinationConfigProperty{
					OnFailure: &awslambda.CfnEventInvokeConfig_OnFailureProperty{
						Destination: &b.queueArns(deadTasks())[0],
					},
				},
			},
		)
	}
	awslambda.NewCfnEventInvokeConfig(b.stack, jsii.String("Failures-"+reclaim), &awslambda.CfnEventInvokeConfigProps{
		FunctionName:             functions[reclaim].FunctionName(),
		Qualifier:                jsii.String("$LATEST"),
		MaximumRetryAttempts:     jsii.Number(0),
		MaximumEventAgeInSeconds: jsii.Number(60),
	})
}

// reclaimEveryMinute invokes reclaim once a minute.
func (b *builder) reclaimEveryMinute(f awslambda.Function) {
	b.rule("EveryMinute", "rollout: look for what was lost", f, awsevents.CfnRuleProps{
		ScheduleExpression: jsii.String("rate(1 minute)"),
	})
}

// interruptionEvents invokes interrupt when a machine of the account is or will
// be taken away, and when a machine of a pool's group has ended or failed to
// launch. EventBridge delivers AWS's own events free of charge.
func (b *builder) interruptionEvents(f awslambda.Function) {
	notices := []string{"EC2 Spot Instance Interruption Warning"}
	if slices.ContainsFunc(b.Deployment.Pools, func(p config.Pool) bool { return p.DrainOnRebalance }) {
		notices = append(notices, "EC2 Instance Rebalance Recommendation")
	}
	b.rule("SpotNotices", "rollout: a machine will be taken away", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.ec2"},
		"detail-type": notices,
	}})
	b.rule("MachinesGone", "rollout: a machine was taken away", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.ec2"},
		"detail-type": []string{"EC2 Instance State-change Notification"},
		"detail":      map[string]any{"state": []string{"shutting-down", "stopping", "stopped", "terminated"}},
	}})
	if !b.Machines {
		return
	}
	// An event pattern has room for 2,048 characters, too few for the names of many
	// groups. The prefix also matches groups of other stacks; interrupt ignores
	// those.
	groups := []any{map[string]any{"prefix": b.cloud.FleetName("")}}
	b.rule("FleetsNews", "rollout: a fleet's machine has ended, or can't begin", f, awsevents.CfnRuleProps{
		EventPattern: map[string]any{
			"source":      []string{"aws.autoscaling"},
			"detail-type": []string{"EC2 Instance Terminate Successful", "EC2 Instance Launch Unsuccessful"},
			"detail":      map[string]any{"AutoScalingGroupName": groups},
		},
	})
}

// rule adds an EventBridge rule that invokes the function, and the permission for
// it.
func (b *builder) rule(id, description string, f awslambda.Function, p awsevents.CfnRuleProps) {
	p.Description = &description
	p.Targets = []any{&awsevents.CfnRule_TargetProperty{Id: jsii.String("function"), Arn: f.FunctionArn()}}
	rule := awsevents.NewCfnRule(b.stack, &id, &p)
	awslambda.NewCfnPermission(b.stack, jsii.String(id+"Calls"), &awslambda.CfnPermissionProps{
		Action:       jsii.String("lambda:InvokeFunction"),
		FunctionName: f.FunctionName(),
		Principal:    jsii.String("events.amazonaws.com"),
		SourceArn:    rule.AttrArn(),
	})
}

// tokenOpensAPI reports whether callers of the API need a token instead of IAM permission.
func (b *builder) tokenOpensAPI() bool { return slices.Contains(b.Deployment.Secrets, tokenSecret) }

// url adds a URL for the API and returns it. Callers need IAM permission; if the
// deployment has the secret with the API's token, they need the token instead.
func (b *builder) url(f awslambda.Function) *string {
	token := b.tokenOpensAPI()
	authentication := "AWS_IAM"
	if token {
		authentication = "NONE"
	}
	url := awslambda.NewCfnUrl(b.stack, jsii.String("Address"), &awslambda.CfnUrlProps{
		TargetFunctionArn: f.FunctionArn(), AuthType: &authentication, InvokeMode: jsii.String("RESPONSE_STREAM"),
	})
	if token {
		// A public URL needs both permissions. They allow calls by the URL only.
		awslambda.NewCfnPermission(b.stack, jsii.String("AnybodyAsksTheApi"), &awslambda.CfnPermissionProps{
			Action:              jsii.String("lambda:InvokeFunctionUrl"),
			FunctionName:        f.FunctionName(),
			Principal:           jsii.String("*"),
			FunctionUrlAuthType: &authentication,
		})
		awslambda.NewCfnPermission(b.stack, jsii.String("AnybodyAsksByTheUrlAlone"), &awslambda.CfnPermissionProps{
			Action:                jsii.String("lambda:InvokeFunction"),
			FunctionName:          f.FunctionName(),
			Principal:             jsii.String("*"),
			InvokedViaFunctionUrl: jsii.Bool(true),
		})
	}
	return url.AttrFunctionUrl()
}
