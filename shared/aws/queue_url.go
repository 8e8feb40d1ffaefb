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

// url returns a queue's address, which SQS is asked for once.
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
			url, err = q.make(ctx, name)
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

// make makes a queue, and first the one of its dead letters. Making a queue
// that is there is no error to SQS.
func (q *Queues) make(ctx context.Context, name string) (string, error) {
	attributes := map[string]string{string(types.QueueAttributeNameMessageRetentionPeriod): strconv.Itoa(int(retention.Seconds()))}
	if !queue.IsDeadLetterQueue(name) {
		policy, err := q.redrive(ctx, name)
		if err != nil {
			return "", err
		}
		attributes[string(types.QueueAttributeNameRedrivePolicy)] = policy
	}
	out, err := q.sqs.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: awssdk.String(q.options.Prefix + name), Attributes: attributes})
	if err != nil {
		return "", translate(ctx, err, "make the queue %s", q.options.Prefix+name)
	}
	return awssdk.ToString(out.QueueUrl), nil
}

// redrive is the policy that moves what is received too often to the dead
// letters.
func (q *Queues) redrive(ctx context.Context, name string) (string, error) {
	dead := queue.DeadLetterQueue(name)
	url, err := q.url(ctx, dead)
	if err != nil {
		return "", err
	}
	arn := types.QueueAttributeNameQueueArn
	out, err := q.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{arn}})
	if err != nil {
		return "", translate(ctx, err, "look at the queue %s", q.options.Prefix+dead)
	}
	policy, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": out.Attributes[string(arn)], "maxReceiveCount": strconv.Itoa(queue.MaxReceives),
	})
	return string(policy), fault.WithKind(fault.Internal, err, "write the policy of dead letters")
}

// translate also forgets the address of a queue that is not there any more.
func (q *Queues) translate(ctx context.Context, name string, err error, format string, args ...any) error {
	err = translate(ctx, err, format, args...)
	if fault.Is(err, fault.NotFound) {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.urls, name)
	}
	return err
}
