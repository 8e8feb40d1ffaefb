package gcp

import (
	"context"
	"os"
	"strings"

	"rollout/shared/capacity"
)

// Variables that Cloud Run sets for a task of a job.
const (
	executionVariable = "CLOUD_RUN_EXECUTION"
	taskIndexVariable = "CLOUD_RUN_TASK_INDEX"
)

// Task is a task of a Cloud Run job as a machine: the inventory of its container, and its
// place in the fleet of the pool. Its only notice is SIGTERM, which every worker obeys.
type Task struct {
	machine capacity.Source
	id      string
}

var (
	_ capacity.Source     = Task{}
	_ capacity.Membership = Task{}
)

// taskOf returns the task that the process runs in. The machine describes its hardware.
func taskOf(machine capacity.Source) (t Task, ok bool) {
	execution, index := os.Getenv(executionVariable), os.Getenv(taskIndexVariable)
	if execution == "" || index == "" {
		return Task{}, false
	}
	return Task{machine, execution + taskSeparator + index}, true
}

// taskSeparator separates the name of an execution from a task's index in the id of a
// machine. Example: "rollout-small-x7k2p/3". No id of an instance has it.
const taskSeparator = "/"

// executionOf returns the execution of a task by the id of its machine. ok is false for
// the id of an instance.
func executionOf(machine string) (execution, index string, ok bool) {
	return strings.Cut(machine, taskSeparator)
}

// Inventory returns the container's inventory with the task's name; see capacity.Source.
func (t Task) Inventory(ctx context.Context) (capacity.Inventory, error) {
	inventory, err := t.machine.Inventory(ctx)
	inventory.Instance = t.id
	inventory.Type, inventory.Class = taskType(inventory.GPUs), taskClass
	return inventory, err
}

// taskClass is the class of a task: it is billed by the second at one price.
const taskClass = "task"

// taskType returns the type of a task by its GPU; "" without one. Examples: "cloud-run-l4",
// "cloud-run-rtx-pro-6000".
func taskType(gpus []capacity.GPU) string {
	if len(gpus) == 0 {
		return ""
	}
	if strings.Contains(gpus[0].Name, "L4") {
		return "cloud-run-l4"
	}
	return "cloud-run-rtx-pro-6000"
}

// Notices returns the machine's own notices; see capacity.Source.
func (t Task) Notices(ctx context.Context) <-chan capacity.Notice { return t.machine.Notices(ctx) }

// InFleet returns true; see capacity.Membership.
func (t Task) InFleet(context.Context) (bool, error) { return true, nil }

// Terminate does nothing: the task ends with its process, and work that waits starts
// another one; see capacity.Membership.
func (t Task) Terminate(context.Context, capacity.TerminationMode) error { return nil }
