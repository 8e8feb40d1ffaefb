package api

import (
	"fmt"
	"time"

	"rollout/shared/config"
)

// What to do about the same trouble depends on where the installation is: on a
// laptop somebody starts `rollout up`; a cloud starts everything itself, and
// what can be done is to look why it did not.

func takesUp(c config.Cloud) time.Duration {
	if c.Provider == "" {
		return takeUp
	}
	return takeUpFar
}

// whoBegins is what lets a run begin that nobody has looked at.
func whoBegins(c config.Cloud) string {
	if c.Provider == "" {
		return "start `rollout up`"
	}
	return fmt.Sprintf("look at the functions' logs: `aws logs tail /aws/lambda/%s`, and …/%s", c.Function("plan"), c.Function("coordinate"))
}

// whoWorks is what brings a pool without workers some.
func whoWorks(c config.Cloud, pool string) string {
	if c.Provider == "" {
		return "start `rollout up`"
	}
	return fmt.Sprintf("a machine takes minutes to come, and none does without a quota or spot capacity; `aws autoscaling describe-scaling-activities --auto-scaling-group-name %s` says why one does not", c.FleetOf(pool))
}

// whoReplaces is what brings a pool that drains new workers.
func whoReplaces(c config.Cloud) string {
	if c.Provider == "" {
		return "start `rollout up` again, or another `gpuworker`"
	}
	return "others come while there is work"
}

// whoTakesUp says when an upload becomes a run.
func whoTakesUp(c config.Cloud) string {
	if c.Provider == "" {
		return "it is no run yet: `rollout up` takes it up within seconds"
	}
	return fmt.Sprintf("it is no run yet: its event takes seconds; else see why in the log of its function, `aws logs tail /aws/lambda/%s`, and put it there again", c.Function("submit"))
}
