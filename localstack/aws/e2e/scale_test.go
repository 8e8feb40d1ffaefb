package e2e

import (
	"testing"

	"rollout/localstack/aws/fakeaws"
)

// With no worker alive a file brings machines up, they answer it, and they go
// when nothing is left to do.
func TestAFileBringsMachinesUpAndTheyGo(t *testing.T) {
	t.Parallel()
	s := serve(t, "--latency", "20ms")
	a := open(t, s, "max_machines = 3\nshards_per_machine = 4\nidle = '2s'", nil)
	const key = "prompts/x.jsonl"
	content := mixedPrompts(160)
	id := a.put(key, content)
	wantSame(t, a.ends(id), laptop(t, s, key, content))
	if _, peak, _ := a.Groups.Size(a.group); peak != 3 {
		t.Errorf("the group had at most %d machines, want its 3", peak)
	}
	eventually(t, "the machines go", func() bool {
		desired, _, alive := a.Groups.Size(a.group)
		return desired == 0 && alive == 0
	})
}

// A run of hundreds of shards takes hundreds of steps where each gets a message
// of its own, and no chain of invocations is cut.
func TestALongRunIsNotCut(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 2\nidle = '1m'", func(o *fakeaws.Options) { o.BatchSize = 1 })
	if err := a.Groups.SetDesired(a.group, 2); err != nil {
		t.Fatal(err)
	}
	const key = "prompts/long.jsonl"
	content := simple(8 * 320)
	id := a.put(key, content)
	wantSame(t, a.ends(id), laptop(t, s, key, content))
	a.wantNothingCut()
	if calls := a.Calls()["coordinate"]; calls.Count < 320 {
		t.Errorf("coordinate had only %d steps", calls.Count)
	}
}
