package stack

import (
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// Names of the functions; functions/aws/NAME is their program.
const (
	submit     = "submit"
	plan       = "plan"
	coordinate = "coordinate"
	finalize   = "finalize"
	reclaim    = "reclaim"
	interrupt  = "interrupt"
	api        = "api"
)

// contents begins the keys of objects that are named by what is in them.
const contents = "cas/"

// tokenSecret holds the API's token, if the deployment has one.
const tokenSecret = "api-token"

// deadTasks is the queue of the tasks that could not be done: those that a
// function could not read, and the asynchronous invocations that failed.
func deadTasks() string { return queue.DeadLetterQueue(host.TaskQueue) }

// promptsOf is where users put their prompts in the bucket.
func promptsOf(c config.Cloud) string { return c.S3.Prefix + record.PromptsPrefix }

// queueNames are the queues that messages are received from, which all have one
// of dead letters beside them.
func queueNames(d config.Deployment) []string {
	names := []string{host.CoordinateQueue}
	for _, p := range d.InferPools() {
		names = append(names, poolQueues(p.Name)...)
	}
	return names
}

func poolQueues(pool string) []string {
	return []string{host.WorkQueue(pool), host.UrgentQueue(pool)}
}
