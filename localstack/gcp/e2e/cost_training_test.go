package e2e

import (
	"math"
	"os/exec"
	"slices"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// costMinibatches are those of a step of the training that is priced: it takes long enough to
// count what a worker asks for by time.
const costMinibatches = 256

// A training of ten steps with two snapshots, priced: its requests, and an hour of its machine.
// A machine is billed by the second, a minute at least.
func TestCostOfTraining(t *testing.T) {
	if !*measureCost {
		t.Skip("SKIPPED: it trains for minutes; run make cost")
	}
	b := newBill()
	in := deployConfig(t, faults{bill: b}, scenarios.Settings{Trains: true}.Config())
	b.take()
	_, stored := in.storageRequests(nil)
	began := time.Now()
	in.costTrainer(t)
	hosttest.Put(t, in.Ports, "prompts/training.toml", scenarios.TrainingConfig(costMinibatches))
	id := identity.UploadRun(bucket, "prompts/training.jsonl",
		hosttest.Put(t, in.Ports, "prompts/training.jsonl", scenarios.TrainingRows))
	in.awaitSummary(t, id)
	seconds := time.Since(began).Seconds()
	objects, _ := in.storageRequests(stored)
	objects[classA] -= 2 // the user's own uploads
	c := b.take()
	steps := price(t, "the requests of ten steps and two snapshots", sum(c.work, objects))
	machine := in.Deployment.InstanceTypesOf(scenarios.TrainingPool)[0]
	spot := listed.Hour(cost.Kind{Type: machine, Class: cost.Spot})
	hour := spot + price(t, "what a worker asks for by time in an hour", scale(c.periodic, time.Hour.Seconds()/seconds))
	t.Logf("an hour of %s, spot: $%.4f; with what its worker asks for: $%.4f", machine, spot, hour)
	all := steps + hour*math.Max(seconds, time.Minute.Seconds())/time.Hour.Seconds()
	t.Logf("ten steps with their machine, in %.0f s here: $%.4f", seconds, all)
	if spot == 0 || hour > 1.02*spot || steps > 0.01 {
		t.Errorf("an hour of %s costs $%.4f with its requests, the machine alone $%.4f; ten steps ask for $%.4f",
			machine, hour, spot, steps)
	}
}

// awaitSummary waits for the end of a run. It looks into the emulator, so that looking counts
// no request.
func (in *installation) awaitSummary(t *testing.T, id identity.RunID) {
	t.Helper()
	scenarios.Eventually(t, "the run's end", func() bool {
		names, err := in.storage.Names(bucket)
		return err == nil && slices.Contains(names, scenarios.Prefix+record.OutputKey(id, record.SummaryFile))
	})
}

// costTrainer starts a worker that trains, until the test ends.
func (in *installation) costTrainer(t *testing.T) {
	t.Helper()
	cmd := exec.Command(gpuworker, "--cloud", config.ProviderGCP, "--pool", scenarios.TrainingPool)
	cmd.Env = append(in.environment(), "CLOUD_RUN_EXECUTION=rollout-trainers-cost", "CLOUD_RUN_TASK_INDEX=0")
	cmd.Stdout, cmd.Stderr = in.log, in.log
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
}
