package diagnosis

import (
	"fmt"
	"time"

	"rollout/shared/config"
)

// What to do about the same trouble depends on where the installation is: on a
// laptop somebody starts `rollout up`; a cloud starts everything itself, and
// what can be done is to look why it did not.

func pickupTime(c config.Cloud) time.Duration {
	if c.Provider == "" {
		return pickupLocal
	}
	return pickupCloud
}

// startHint is what lets a run begin that nobody has looked at.
func startHint(c config.Cloud) string {
	if c.Provider == "" {
		return "start `rollout up`"
	}
	return fmt.Sprintf("look at the functions' logs: `aws logs tail /aws/lambda/%s`, and …/%s", c.FunctionName("plan"), c.FunctionName("coordinate"))
}

// workerHint is what brings a pool without workers some.
func workerHint(c config.Cloud, pool string) string {
	if c.Provider == "" {
		return "start `rollout up`"
	}
	return fmt.Sprintf("a machine takes minutes to come, and none does without a quota or spot capacity; `aws autoscaling describe-scaling-activities --auto-scaling-group-name %s` says why one does not", c.FleetName(pool))
}

// replacementHint is what brings a pool that drains new workers.
func replacementHint(c config.Cloud) string {
	if c.Provider == "" {
		return "start `rollout up` again, or another `gpuworker`"
	}
	return "others come while there is work"
}

// UploadHint says when an upload becomes a run.
func UploadHint(c config.Cloud) string {
	if c.Provider == "" {
		return "it is no run yet: `rollout up` takes it up within seconds"
	}
	return fmt.Sprintf("it is no run yet: its event takes seconds; else see why in the log of its function, `aws logs tail /aws/lambda/%s`, and put it there again", c.FunctionName("submit"))
}
