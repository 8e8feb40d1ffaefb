package aws

import (
	"context"
	"encoding/json"
	"strconv"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// url returns the URL of a queue. It asks SQS once and caches the result.
func (q *Queues) url(ctx context.Context, name string) (string, error) {
	q.mu.Lock()
	url, ok := q.urls[name]
	q.mu.Unlock()
	if ok {
		return url, nil
	}
	full := q.options.Prefix + name
	out, err := q.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &full})
	if err == nil {
		url = awssdk.ToString(out.QueueUrl)
	} else {
		err = translate(ctx, err, "look for the queue %s", full)
		if fault.Is(err, fault.NotFound) && q.options.CreateMissing {
			url, err = q.create(ctx, name)
		}
	}
	if err != nil {
		return "", err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.urls[name] = url
	return url, nil
}

// create creates a queue and, before it, its dead-letter queue. SQS accepts the
// creation of a queue that exists.
func (q *Queues) create(ctx context.Context, name string) (string, error) {
	attributes := map[string]string{
		string(types.QueueAttributeNameMessageRetentionPeriod): strconv.Itoa(int(retention.Seconds())),
	}
	if !queue.IsDeadLetterQueue(name) {
		policy, err := q.redrive(ctx, name)
		if err != nil {
			return "", err
		}
		attributes[string(types.QueueAttributeNameRedrivePolicy)] = policy
	}
	full := q.options.Prefix + name
	out, err := q.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &full, Attributes: attributes})
	if err != nil {
		return "", translate(ctx, err, "create the queue %s", full)
	}
	return awssdk.ToString(out.QueueUrl), nil
}

// redrive returns the policy that moves messages that were received too often to
// the dead-letter queue.
func (q *Queues) redrive(ctx context.Context, name string) (string, error) {
	dead := queue.DeadLetterQueue(name)
	url, err := q.url(ctx, dead)
	if err != nil {
		return "", err
	}
	arn := types.QueueAttributeNameQueueArn
	out, err := q.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{arn},
	})
	if err != nil {
		return "", translate(ctx, err, "read the attributes of the queue %s", q.options.Prefix+dead)
	}
	policy, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": out.Attributes[string(arn)], "maxReceiveCount": strconv.Itoa(queue.MaxReceives),
	})
	return string(policy), fault.WithKind(fault.Internal, err, "encode the redrive policy")
}

// translate also removes the URL of a queue that no longer exists from the cache.
func (q *Queues) translate(ctx context.Context, name string, err error, format string, args ...any) error {
	err = translate(ctx, err, format, args...)
	if fault.Is(err, fault.NotFound) {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.urls, name)
	}
	return err
}
