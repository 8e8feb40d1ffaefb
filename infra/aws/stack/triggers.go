package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"slices"

	"rollout/shared/host"
)

// Of the mapping of coordinate's queue. A batch is one step of each of its
// runs; two at once keep each other from waiting, more would only meet in the
// same documents.
const (
	batchSize      = 1000
	batchSeconds   = 1
	maxConcurrency = 2
)

// notify allows S3 to call the function for the bucket's objects.
func (b *builder) notify(f awslambda.Function) (awslambda.CfnPermission, *string) {
	return awslambda.NewCfnPermission(b.stack, jsii.String("BucketCallsSubmit"), &awslambda.CfnPermissionProps{
		Action: jsii.String("lambda:InvokeFunction"), FunctionName: f.FunctionName(), Principal: jsii.String("s3.amazonaws.com"),
		SourceAccount: awscdk.Aws_ACCOUNT_ID(), SourceArn: jsii.String(b.bucketArn()), // by name: the bucket names the function
	}), f.FunctionArn()
}

// bridge calls the function for new prompts of a bucket that the stack does not
// make, whose notifications are its owner's: they must go to EventBridge, too.
func (b *builder) bridge(f awslambda.Function) {
	b.rule("Prompts", "rollout: there are new prompts", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.s3"},
		"detail-type": []string{"Object Created"},
		"detail": map[string]any{
			"bucket": map[string]any{"name": []string{b.cloud.S3.Bucket}},
			"object": map[string]any{"key": []any{map[string]any{"prefix": promptsOf(b.cloud)}}},
		},
	}})
}

// poll lets Lambda call coordinate with batches of its queue.
func (b *builder) poll(f awslambda.Function, queues map[string]awssqs.Queue) {
	awslambda.NewCfnEventSourceMapping(b.stack, jsii.String("QueueCallsCoordinate"), &awslambda.CfnEventSourceMappingProps{
		FunctionName: f.FunctionName(), EventSourceArn: queues[host.CoordinateQueue].QueueArn(),
		BatchSize: jsii.Number(batchSize), MaximumBatchingWindowInSeconds: jsii.Number(batchSeconds),
		FunctionResponseTypes: jsii.Strings("ReportBatchItemFailures"),
		ScalingConfig:         &awslambda.CfnEventSourceMapping_ScalingConfigProperty{MaximumConcurrency: jsii.Number(maxConcurrency)},
	})
}

// keepFailures puts the events of asynchronous calls that failed, also when
// they were repeated, among the dead tasks.
//
// Reclaim is left out: it is called anew in a minute, with the same event. An
// alarm tells if it fails.
func (b *builder) keepFailures(functions map[string]awslambda.Function) {
	for _, name := range []string{submit, plan, finalize, interrupt} {
		awslambda.NewCfnEventInvokeConfig(b.stack, jsii.String("Failures-"+name), &awslambda.CfnEventInvokeConfigProps{
			FunctionName: functions[name].FunctionName(), Qualifier: jsii.String("$LATEST"),
			MaximumRetryAttempts: jsii.Number(2), MaximumEventAgeInSeconds: jsii.Number(6 * 3600),
			DestinationConfig: &awslambda.CfnEventInvokeConfig_DestinationConfigProperty{
				OnFailure: &awslambda.CfnEventInvokeConfig_OnFailureProperty{Destination: &b.queueArns(deadTasks())[0]},
			},
		})
	}
	awslambda.NewCfnEventInvokeConfig(b.stack, jsii.String("Failures-"+reclaim), &awslambda.CfnEventInvokeConfigProps{
		FunctionName: functions[reclaim].FunctionName(), Qualifier: jsii.String("$LATEST"),
		MaximumRetryAttempts: jsii.Number(0), MaximumEventAgeInSeconds: jsii.Number(60),
	})
}

// schedule calls reclaim every minute.
func (b *builder) schedule(f awslambda.Function) {
	b.rule("EveryMinute", "rollout: look for what was lost", f, awsevents.CfnRuleProps{ScheduleExpression: jsii.String("rate(1 minute)")})
}

// notices calls interrupt when a machine of the account is or will be taken
// away, and when one of the pools' groups has ended or can't begin. AWS delivers
// its own events without charge.
func (b *builder) notices(f awslambda.Function) {
	b.rule("SpotNotices", "rollout: a machine will be taken away", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.ec2"},
		"detail-type": []string{"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"},
	}})
	b.rule("MachinesGone", "rollout: a machine was taken away", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.ec2"},
		"detail-type": []string{"EC2 Instance State-change Notification"},
		"detail":      map[string]any{"state": []string{"shutting-down", "stopping", "stopped", "terminated"}},
	}})
	if !b.Machines {
		return
	}
	// A pattern has room for 2,048 characters, which the names of many groups
	// would not fit into; interrupt knows its own.
	groups := []any{map[string]any{"prefix": b.cloud.FleetName("")}}
	b.rule("FleetsNews", "rollout: a fleet's machine has ended, or can't begin", f, awsevents.CfnRuleProps{EventPattern: map[string]any{
		"source":      []string{"aws.autoscaling"},
		"detail-type": []string{"EC2 Instance Terminate Successful", "EC2 Instance Launch Unsuccessful"},
		"detail":      map[string]any{"AutoScalingGroupName": groups},
	}})
}

func (b *builder) rule(id, description string, f awslambda.Function, p awsevents.CfnRuleProps) {
	p.Description = &description
	p.Targets = []any{&awsevents.CfnRule_TargetProperty{Id: jsii.String("function"), Arn: f.FunctionArn()}}
	rule := awsevents.NewCfnRule(b.stack, &id, &p)
	awslambda.NewCfnPermission(b.stack, jsii.String(id+"Calls"), &awslambda.CfnPermissionProps{
		Action: jsii.String("lambda:InvokeFunction"), FunctionName: f.FunctionName(), Principal: jsii.String("events.amazonaws.com"), SourceArn: rule.AttrArn(),
	})
}

// url gives the API an address: for those whom IAM lets call it or, if the
// deployment has the secret with the API's token, for those who know that.
func (b *builder) url(f awslambda.Function) *string {
	token := slices.Contains(b.Deployment.Secrets, tokenSecret)
	authentication := "AWS_IAM"
	if token {
		authentication = "NONE"
	}
	url := awslambda.NewCfnUrl(b.stack, jsii.String("Address"), &awslambda.CfnUrlProps{
		TargetFunctionArn: f.FunctionArn(), AuthType: &authentication, InvokeMode: jsii.String("RESPONSE_STREAM"),
	})
	if token {
		// Both are needed, and open nothing else than the address.
		awslambda.NewCfnPermission(b.stack, jsii.String("AnybodyAsksTheApi"), &awslambda.CfnPermissionProps{
			Action: jsii.String("lambda:InvokeFunctionUrl"), FunctionName: f.FunctionName(), Principal: jsii.String("*"), FunctionUrlAuthType: &authentication,
		})
		awslambda.NewCfnPermission(b.stack, jsii.String("AnybodyAsksByTheUrlAlone"), &awslambda.CfnPermissionProps{
			Action: jsii.String("lambda:InvokeFunction"), FunctionName: f.FunctionName(), Principal: jsii.String("*"), InvokedViaFunctionUrl: jsii.Bool(true),
		})
	}
	return url.AttrFunctionUrl()
}
