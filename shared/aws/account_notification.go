package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// notification checks that the bucket tells the function submit of uploads: by itself, or
// through EventBridge and a rule, as with a bucket that existed before the stack.
func (a account) notification(ctx context.Context) (string, error) {
	bucket, function := a.at.Cloud.S3, a.at.Cloud.FunctionName(host.SubmitFunction)
	prompts := bucket.Prefix + record.PromptsPrefix
	client := s3.NewFromConfig(a.sdk, func(o *s3.Options) { o.UsePathStyle = o.BaseEndpoint != nil })
	out, err := client.GetBucketNotificationConfiguration(ctx,
		&s3.GetBucketNotificationConfigurationInput{Bucket: &bucket.Bucket})
	err = translate(ctx, err, "read the notifications of the bucket %s", bucket.Bucket)
	if err := seen(err, "s3:GetBucketNotification"); err != nil {
		return "", err
	}
	for _, l := range out.LambdaFunctionConfigurations {
		if invokes(awssdk.ToString(l.LambdaFunctionArn), function) && ofCreated(l.Events) && passes(l.Filter, prompts) {
			return "uploads to " + prompts + " invoke " + function, nil
		}
	}
	if out.EventBridgeConfiguration == nil {
		return "", &fault.Error{Kind: fault.NotFound,
			Err: fault.New(fault.NotFound, "the bucket %s tells the function %s of no uploads to %s", bucket.Bucket, function,
				prompts),
			Remedy: "deploy the stack again or, for a bucket that is not the stack's, let it send its events to EventBridge: " +
				"run aws s3api put-bucket-notification-configuration --bucket " + bucket.Bucket +
				` --notification-configuration '{"EventBridgeConfiguration": {}}'; until then uploads become runs within two hours`}
	}
	rules, err := a.rulesOf(ctx, function)
	if err != nil {
		return "", err
	}
	if len(rules) == 0 {
		return "", &fault.Error{Kind: fault.NotFound,
			Err: fault.New(fault.NotFound, "the bucket %s sends its events to EventBridge, where no rule invokes %s",
				bucket.Bucket, function),
			Remedy: "deploy the stack with -c bucket=existing; until then uploads become runs within two hours"}
	}
	return fmt.Sprintf("uploads invoke %s by the rule %s of EventBridge", function, strings.Join(rules, ", ")), nil
}

// invokes reports whether the ARN is that of the function, or of a version of it.
func invokes(arn, function string) bool {
	_, name, _ := strings.Cut(arn, ":function:")
	name, _, _ = strings.Cut(name, ":")
	return name == function
}

// ofCreated reports whether events of all new objects are among those of a configuration.
func ofCreated(events []types.Event) bool { return slices.Contains(events, types.EventS3ObjectCreated) }

// passes reports whether a filter lets all keys below the prefix pass.
func passes(f *types.NotificationConfigurationFilter, prefix string) bool {
	if f == nil || f.Key == nil {
		return true
	}
	for _, r := range f.Key.FilterRules {
		value := awssdk.ToString(r.Value)
		if strings.EqualFold(string(r.Name), "suffix") && value != "" || !strings.HasPrefix(prefix, value) {
			return false
		}
	}
	return true
}

// rulesOf returns the names of EventBridge's rules that invoke the function. Its ARN has the
// account's id.
func (a account) rulesOf(ctx context.Context, function string) ([]string, error) {
	who, err := a.caller(ctx)
	if err := seen(err, "sts:GetCallerIdentity"); err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(awssdk.ToString(who.Arn), ":") // arn:PARTITION:sts:…
	partition, _, _ := strings.Cut(rest, ":")
	target := fmt.Sprintf("arn:%s:lambda:%s:%s:function:%s", partition, a.at.Cloud.Region, awssdk.ToString(who.Account),
		function)
	out, err := eventbridge.NewFromConfig(a.sdk).ListRuleNamesByTarget(ctx,
		&eventbridge.ListRuleNamesByTargetInput{TargetArn: &target})
	if err := seen(translate(ctx, err, "list the rules of %s", function), "events:ListRuleNamesByTarget"); err != nil {
		return nil, err
	}
	return out.RuleNames, nil
}
