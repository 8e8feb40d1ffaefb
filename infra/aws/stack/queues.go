package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"rollout/shared/host"
	"rollout/shared/queue"
)

// queueRetentionDays is the longest that SQS offers: the messages of a paused
// run must survive.
const queueRetentionDays = 14

// doctorSeconds is the shortest retention that SQS offers. The doctor receives
// its own messages within seconds or not at all.
const doctorSeconds = 60

// queues adds the queues and returns them by their names in rollout/shared/host,
// without the installation's prefix.
func (b *builder) queues() map[string]awssqs.Queue {
	made := map[string]awssqs.Queue{}
	for _, name := range queueNames(b.Deployment) {
		dead := b.queue(queue.DeadLetterQueue(name), awssqs.QueueProps{})
		visibility := seconds(30) // workers set their own with each request
		if name == host.CoordinateQueue {
			visibility = seconds(6 * limits[coordinate].seconds) // Lambda's recommendation
		}
		made[dead.name], made[name] = dead.Queue, b.queue(name, awssqs.QueueProps{
			VisibilityTimeout: visibility,
			DeadLetterQueue: &awssqs.DeadLetterQueue{
				Queue:           dead.Queue,
				MaxReceiveCount: jsii.Number(queue.MaxReceives),
			},
		}).Queue
	}
	tasks := b.queue(deadTasks(), awssqs.QueueProps{})
	suppress(
		child(tasks.Queue),
		suppression{
			"AwsSolutions-SQS3",
			"It holds the dead letters of asynchronous invocations, which name no queue.",
		},
	)
	made[tasks.name] = tasks.Queue
	made[host.DoctorQueue] = b.queue(host.DoctorQueue, awssqs.QueueProps{
		VisibilityTimeout: seconds(30), RetentionPeriod: seconds(doctorSeconds),
		DeadLetterQueue: &awssqs.DeadLetterQueue{Queue: tasks.Queue, MaxReceiveCount: jsii.Number(queue.MaxReceives)},
	}).Queue
	return made
}

// named is a queue with its name in rollout/shared/host.
type named struct {
	awssqs.Queue
	name string
}

func (b *builder) queue(name string, p awssqs.QueueProps) named {
	p.QueueName = jsii.String(b.cloud.SQS.Prefix + name)
	if p.RetentionPeriod == nil {
		p.RetentionPeriod = awscdk.Duration_Days(jsii.Number(queueRetentionDays))
	}
	if b.Keys.Queues != "" {
		p.Encryption, p.EncryptionMasterKey = awssqs.QueueEncryption_KMS, b.key("Queue-"+name, b.Keys.Queues)
	} else {
		p.Encryption = awssqs.QueueEncryption_SQS_MANAGED
	}
	p.EnforceSSL = jsii.Bool(true)
	return named{awssqs.NewQueue(b.stack, jsii.String("Queue-"+name), &p), name}
}

func (b *builder) queueArns(names ...string) (arns []string) {
	for _, name := range names {
		arns = append(arns, b.arn("sqs", b.cloud.SQS.Prefix+name))
	}
	return arns
}
