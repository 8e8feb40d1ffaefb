package stack

import (
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// The names of the functions. The program of each is in functions/aws/NAME.
const (
	submit     = "submit"
	plan       = "plan"
	coordinate = "coordinate"
	finalize   = "finalize"
	reclaim    = "reclaim"
	interrupt  = "interrupt"
	api        = "api"
)

// contents is the key prefix of objects that are named by the hash of their
// content.
const contents = "cas/"

// tokenSecret is the secret with the API's token. It is optional.
const tokenSecret = "api-token"

// deadTasks returns the queue of tasks that failed for good: those that a
// function could not read, and asynchronous invocations that failed.
func deadTasks() string { return queue.DeadLetterQueue(host.TaskQueue) }

// promptsOf returns the key prefix below which users upload their prompts.
func promptsOf(c config.Cloud) string { return c.S3.Prefix + record.PromptsPrefix }

// queueNames returns the queues that messages are received from, coordinate's
// first. Each has a dead-letter queue of its own.
func queueNames(d config.Deployment) []string {
	names := []string{host.CoordinateQueue}
	for _, p := range d.Pools {
		names = append(names, poolQueues(p.Name)...)
	}
	return names
}

func poolQueues(pool string) []string {
	return []string{host.WorkQueue(pool), host.UrgentQueue(pool)}
}
