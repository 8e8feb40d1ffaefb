package e2e

import (
	"fmt"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
)

// Each message is a batch of its own, so that the run takes hundreds of steps. No
// chain of invocations is cut.
func TestLongRunIsNotCutAsALoop(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 2}, func(o *fakeaws.Options) { o.BatchSize = 1 })
	const key = "prompts/long.jsonl"
	content := scenarios.SimplePrompts(8 * 320)
	id := a.Put(key, content)
	scenarios.WantSame(t, a.AwaitEnd(id), a.Local(key, content))
	a.Check()
	if calls := a.Calls()["coordinate"]; calls.Count < 320 {
		t.Errorf("coordinate had %d steps, want at least 320", calls.Count)
	}
}

// Many runs share coordinate's batches, each at another stage of its life. Their chains
// of invocations do not lengthen each other.
func TestChainsOfManyRunsAreAsShortAsThoseOfOne(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1}, nil)
	var ids []identity.RunID
	for n := range 24 {
		ids = append(ids, a.Put(fmt.Sprintf("prompts/%d.jsonl", n), scenarios.SimplePrompts(2)))
	}
	for _, id := range ids {
		if got := a.AwaitEnd(id).Summary; got.Completed != 2 {
			t.Errorf("run %s has %d answers, want 2", id, got.Completed)
		}
	}
	a.Check()
}
