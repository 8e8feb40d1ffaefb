package worker_test

import (
	"testing"
	"testing/synctest"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// The worker of a role's pool asks the role's model.
func TestExecutorSeesTheModelOfTheShardsRole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 1)
		inputtest.Plan(t, d.Ports, inputtest.WithJudge(inputtest.Manifest(1)), inputtest.Prompts(0, 1),
			inputtest.Prompts(1, 1))
		var seen []record.Manifest
		e := &fakeExecutor{}
		e.onShard = func(s *worker.Shard) { seen = append(seen, s.Manifest) }
		d.start("w1", e, func(c *worker.Config) { c.Pool = "judges" })
		d.send(host.WorkQueue("judges"), events.Work{Run: string(run), Shard: 1, Range: 1, Pool: "judges"})
		synctest.Wait()
		if doc := d.shard(1); doc.State != shard.Done {
			t.Fatalf("the shard is %s", doc.State)
		}
		if len(seen) != 1 || seen[0].ModelURI != "wise" || seen[0].Pool != "judges" ||
			seen[0].ModelID != inputtest.WithJudge(inputtest.Manifest(1)).Roles[0].ModelID {
			t.Errorf("the executor gets %+v", seen)
		}
	})
}
