package gcp

import (
	"fmt"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host"
)

// ProfileOf returns the capabilities and hints of a stack, whose functions Cloud Run
// starts when they are needed, and whose queues are billed by request; see
// cloud.Provider.
func ProfileOf(d config.Deployment) cloud.Profile {
	logs := func(function string) string {
		return fmt.Sprintf("`gcloud run services logs read %s --region=%s --project=%s`",
			d.Cloud.FunctionName(function), d.Cloud.Region, d.Cloud.Project)
	}
	return cloud.Profile{
		Capabilities: cloud.Capabilities{LongPoll: true, BilledQueues: true, ManagedFleet: true, DeclaredQueues: true,
			RemoteBucket: true},
		Hints: cloud.Hints{
			PickupTime: 30 * time.Second, // functions may have to start first
			Start: fmt.Sprintf("look at the functions' logs: %s, and %s",
				logs(host.PlanFunction), logs(host.CoordinateFunction)),
			Workers:     func(pool string) string { return workersHint(d, pool) },
			Replacement: "other machines start while there is work",
			ConsoleOutput: func(machine string) string {
				if execution, task, ok := executionOf(machine); ok {
					return fmt.Sprintf(`gcloud logging read 'labels."run.googleapis.com/execution_name"=%q AND `+
						`labels."run.googleapis.com/task_index"=%q' --project=%s`, execution, task, d.Cloud.Project)
				}
				return fmt.Sprintf("gcloud logging read 'resource.labels.instance_id=%q' --project=%s", machine, d.Cloud.Project)
			},
			PendingUpload: fmt.Sprintf("it is not a run yet: its event takes seconds, and one that was lost is sent again "+
				"within some two hours; if it stays, see why in the log of its function, %s, and put the file there again",
				logs(host.SubmitFunction)),
		},
	}
}

// workersHint tells how a pool gets workers.
func workersHint(d config.Deployment, pool string) string {
	c := d.Cloud
	if d.Pool(pool).Machines == config.MachinesCloudRun {
		return fmt.Sprintf("wait for a task, which needs a quota of Cloud Run's GPUs; "+
			"`gcloud run jobs executions list --job=%s --region=%s --project=%s` shows them",
			c.FleetName(pool), c.Region, c.Project)
	}
	return fmt.Sprintf("wait some minutes for a machine, which needs a quota and capacity; "+
		"`gcloud compute instance-groups managed list-errors %s --region=%s --project=%s` says why none starts",
		GroupNames(d, pool)[0], c.Region, c.Project)
}
